"""``flintmq config check``: all that is wrong with a file at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from flintmq.cli.configs.config_check import ServerKind, Verdict, check_config
from flintmq.cli.main import run
from flintmq.settings.without_meaning import WITHOUT_MEANING
from tools.settings_table import rows


def test_the_list_of_settings_without_meaning_is_what_the_code_says() -> None:
    assert {row.key for row in rows() if row.state == "without meaning here"} == WITHOUT_MEANING


def check(path: Path, text: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:
    path.write_text(text)
    code = run(["config", "check", str(path), "--format", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_file_is_told_all_that_is_wrong_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "brokerName=a\nbrokerId=-1\nflushDiskType=SOMETIMES\nflushDiskTyp=SYNC_FLUSH\n"
        "sendMessageThreadPoolNums=4\nxyzzy=1\nmessageStorePlugIn=x.Y\n"
    )
    code, found = check(tmp_path / "broker.conf", text, capsys=capsys)
    assert code == 1
    assert (found["kind"], found["sound"], found["keyCount"]) == ("broker", False, 7)
    verdicts = {one["key"]: (one["verdict"], one["nearest"]) for one in found["settings"]}
    assert verdicts == {
        "brokerId": ("refused", None),
        "flushDiskType": ("refused", None),
        "messageStorePlugIn": ("refused", None),
        "flushDiskTyp": ("unknown", "flushDiskType"),
        "xyzzy": ("unknown", None),
        "sendMessageThreadPoolNums": ("without meaning", None),
    }


def test_a_file_of_a_name_server_is_known_by_its_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "namesrv.conf"
    code, found = check(path, "kvConfigPath=/x\nclusterTest=true\nlistenPort=1", capsys=capsys)
    assert (code, found["kind"], found["sound"]) == (0, "namesrv", True)
    code, found = check(path, "kvConfigPath=/x\n", "--kind", "broker", capsys=capsys)
    assert (code, found["settings"][0]["verdict"]) == (1, "unknown")


def test_a_sound_file_has_nothing_to_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=a\nbrokerRole=SLAVE\nbrokerId=1\n")
    assert run(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out.endswith("a file of a broker, 3 keys: nothing to say\n")


def test_the_text_has_a_line_for_each_setting_and_a_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("listenPort=many\nfastestMode=true\n")
    assert run(["config", "check", str(path)]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("refused: listenPort=many (allowed is a whole number")
    assert second.startswith("unknown: fastestMode=true")
    assert last.endswith("2 keys: 1 refused, 1 unknown")


def test_what_contradicts_itself_is_refused_too() -> None:
    found = check_config({"brokerRole": "SLAVE", "brokerId": "0"}, ServerKind.BROKER)
    assert [(one.key, one.verdict) for one in found.settings] == [("brokerId", Verdict.REFUSED)]


def test_a_password_is_not_shown() -> None:
    found = check_config({"tls.server.keyPasswords": "x", "myPassword": "secret"})
    assert all("secret" not in str(one) for one in found.settings)


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    assert run(["config", "check", str(tmp_path / "nothing")]) == 2
