"""``flintmq store``: what it prints, and how it ends."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.cli.main import run
from flintmq.format.stored.record_encoding import encode_record
from tests.kits.store.offline_stores import (
    ENTRIES,
    HOST,
    LOG_FILE_SIZE,
    SLOTS,
    START_MS,
    check,
    fingerprint,
    flip,
    log_file,
    make_store,
    overwrite,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store nobody harms."""
    return make_store(tmp_path_factory.mktemp("cli") / "store")


@pytest.fixture
def root(tmp_path: Path, shared: Path) -> Path:
    """A copy that may be harmed."""
    shutil.copytree(shared, tmp_path / "store")
    return tmp_path / "store"


def output(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Run ``flintmq store`` and return what it printed; all must have gone as expected."""
    assert run(["store", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out


def test_every_command_leaves_the_store_as_it_was(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path
) -> None:
    before = fingerprint(root)
    for arguments in (
        ["stat", root],
        ["stat", root, "--format", "json"],
        ["dump", root],
        ["dump", root, "--key", "key-3"],
        ["verify", root],
        ["rebuild", root, "--out", tmp_path / "out"],
    ):
        assert output(capsys, *arguments)
    assert fingerprint(root) == before


def test_stat_tells_what_was_detected(capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    text = output(capsys, "stat", shared)
    assert f"files of {LOG_FILE_SIZE} bytes" in text.replace("file of", "files of")
    assert f"{SLOTS} slots and {ENTRIES} entries each (detected from the entries)" in text
    assert "0: 0 to 50, 3 files" in text
    assert "log flushed to" in text
    report = json.loads(output(capsys, "stat", shared, "--format", "json"))
    assert report["geometry"]["slots"] == SLOTS
    assert report["checkpoint"]["marks"]["unitTotal"] == 100
    assert report["findings"]["problemCount"] == 0


def test_dump_prints_lines_of_json(capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    lines = output(capsys, "dump", shared, "--format", "jsonl").splitlines()
    messages = [json.loads(line) for line in lines]
    assert len(messages) == 100
    assert messages[5]["topic"] == "orders"
    assert messages[5]["properties"]["KEYS"] == "key-5"
    assert messages[5]["tagsCode"] == messages[5]["dispatchTagsCode"]


def test_dump_selects(capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    table = output(capsys, "dump", shared, "--topic", "orders", "--queue", "1", "--from", "48")
    assert [line.split()[-1] for line in table.splitlines()[1:]] == ["key-97", "key-99"]
    table = output(capsys, "dump", shared, "--key", "key-42")
    assert len(table.splitlines()) == 2
    start = str(START_MS + 10_000)
    table = output(capsys, "dump", shared, "--from", start, "--to", "2023-11-14T22:13:32.456Z")
    assert [line.split()[-1] for line in table.splitlines()[1:]] == ["key-10", "key-11"]
    assert len(output(capsys, "dump", shared, "--limit", "3", "--scan").splitlines()) == 4


def test_damage_is_told_on_stderr(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    flip(log_file(root, 1), 120)
    overwrite(log_file(root, 2), 0, bytes(40))
    assert run(["store", "dump", str(root)]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("BODY DAMAGED") == 1
    assert len(captured.out.splitlines()) == 100
    assert captured.err.splitlines()[0].startswith("flintmq: checksum:")
    assert f"at {2 * LOG_FILE_SIZE}" in captured.err


def test_verify_says_sound_or_names_the_damage(
    capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    assert output(capsys, "verify", root).splitlines()[-1] == "sound"
    flip(log_file(root, 1), 120)
    text = output(capsys, "verify", root, code=1)
    assert text.splitlines()[-1] == "1 problem found"
    assert f"checksum: commitlog/{LOG_FILE_SIZE:020d} at {LOG_FILE_SIZE}:" in text
    report = json.loads(output(capsys, "verify", root, "--format", "json", code=1))
    assert report["findings"]["kept"][0]["kind"] == "checksum"
    assert report["damages"][0]["start"] == LOG_FILE_SIZE
    shutil.rmtree(root / "index")
    text = output(capsys, "verify", root, "--without-index", code=1)
    assert "index    not checked" in text
    assert "key-missing" not in text


def test_details_that_are_not_shown_are_counted(
    capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    for number in range(3):
        flip(log_file(root, number), 120)
    text = output(capsys, "verify", root, "--details", "1", code=1)
    assert "3 problems:" in text
    assert "checksum: 3 in all" in text


def test_delay_levels_can_be_given(capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    assert output(capsys, "verify", shared, "--delay-levels", "1s 5s").endswith("sound\n")
    assert run(["store", "verify", str(shared), "--delay-levels", "soon"]) == 2
    assert "delay level 1 is no duration" in capsys.readouterr().err


def test_a_shape_that_no_file_tells_is_asked_for_by_its_options(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path
) -> None:
    path = min((root / "index").iterdir())
    overwrite(path, 40, bytes(number * 37 % 251 for number in range(path.stat().st_size - 40)))
    out = tmp_path / "out"
    assert run(["store", "rebuild", str(root), "--out", str(out)]) == 2
    words = f"{out}: the shape of the index files is unknown; give --hash-slots and --index-entries"
    assert words in capsys.readouterr().err


def test_rebuild_makes_both_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path
) -> None:
    text = output(capsys, "rebuild", root, "--out", tmp_path / "both")
    assert text == "100 records: 100 units in 2 queues, 200 index entries in 3 files\n"
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"consumequeue", "index"}
    output(capsys, "rebuild", root, "--index", "--out", tmp_path / "index")
    assert {path.name for path in (tmp_path / "index").iterdir()} == {"index"}
    for place in (root, root / "sub", tmp_path / "both"):
        assert run(["store", "rebuild", str(root), "--out", str(place)]) == 2
    assert "is not empty" in capsys.readouterr().err
    flip(log_file(root, 0), 4)
    assert run(["store", "rebuild", str(root), "--out", str(tmp_path / "damaged")]) == 1


@pytest.mark.parametrize("command", ["stat", "dump", "verify"])
def test_what_is_no_store_ends_with_three_and_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    for path in (tmp_path, tmp_path / "missing\x1b[31m"):
        assert run(["store", command, str(path)]) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.splitlines()) == 1
        assert "not a store" in captured.err
        assert "\x1b" not in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["frob"],
        ["dump"],
        ["dump", "DIR", "--queue", "1"],
        ["dump", "DIR", "--topic", "t", "--queue", "1", "--from", "today"],
        ["dump", "DIR", "--format", "xml"],
        ["verify", "DIR", "--hash-slots", "0"],
        ["rebuild", "DIR"],
    ],
)
def test_wrong_usage_ends_with_two(
    capsys: pytest.CaptureFixture[str], shared: Path, arguments: list[str]
) -> None:
    assert run(["store", *(str(shared) if one == "DIR" else one for one in arguments)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_names_from_files_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    end = check(root).log_end
    record = encode_record(
        b"evil\x1b[2J",
        0,
        0,
        0,
        end,
        0,
        0,
        HOST,
        START_MS + 10**6,
        HOST,
        0,
        0,
        b"",
        b"TAGS\x01\x1b]0;x\x07",
    )
    overwrite(log_file(root, -1), end % LOG_FILE_SIZE, record)
    (root / "consumequeue" / "evil\x1b[2J" / "0").mkdir(parents=True)
    for arguments, code in (
        (["stat", root], 0),
        (["dump", root], 0),
        (["dump", root, "--format", "jsonl"], 0),
        (["verify", root], 1),
        (["verify", root, "--format", "json"], 1),
    ):
        text = output(capsys, *arguments, code=code)
        assert "\x1b" not in text
        assert "evil" in text


def test_several_log_directories(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    second.mkdir()
    moved = log_file(root, 1)
    moved.rename(second / moved.name)
    output(capsys, "verify", root, code=1)
    both = ["--commitlog", root / "commitlog", "--commitlog", second]
    assert output(capsys, "verify", root, *both).endswith("sound\n")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert flintmq.__version__ in capsys.readouterr().out
    assert run(["store", "-h"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("stat", "dump", "verify", "rebuild"))


def test_a_reader_that_goes_away_is_no_failure(shared: Path) -> None:
    program = "from flintmq.cli.main import main; main()"
    command = [sys.executable, "-c", program, "store", "dump", str(shared), "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.parametrize("form", ["text", "json"])
def test_verify_start_shows_what_a_start_would_do(
    capsys: pytest.CaptureFixture[str], root: Path, form: str
) -> None:
    assert "the store starts whole" in output(capsys, "verify", root, "--start")
    offset = int(log_file(root, 1).name)
    overwrite(log_file(root, 1), 100, b"garbage " * 4)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    before = fingerprint(root)
    text = output(capsys, "verify", root, "--start", "--format", form, code=1)
    if form == "json":
        report = json.loads(text)
        assert report["recovery"]["damagedRanges"][0]["start"] == offset
        assert (report["refused"], report["whole"]) == ("", False)
        assert report["recovery"]["recordsBehindDamage"] > 50
    else:
        assert f"{offset} to " in text
        assert "stepped over" in text
        assert "the store starts without all of its log" in text
    refused = output(capsys, "verify", root, "--start", "--set", "damagedLogPolicy=refuse", code=1)
    assert f"refused   {log_file(root, 1)}: damaged at {offset}" in refused
    assert fingerprint(root) == before


def test_verify_start_takes_settings(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    output(capsys, "verify", root, "--set", "a=b", code=2)
    output(capsys, "verify", root, "--start", "--set", "nonsense", code=2)
    output(capsys, "verify", root, "--start", "--set", "damagedLogPolicy=perhaps", code=2)
    log_file(root, 1).write_bytes(b"short")
    assert "5 bytes instead of" in output(capsys, "verify", root, "--start", code=1)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("text", "body 5 "),
        ("auto", "body 5 "),
        ("json", "body 5 "),
        ("hex", b"body 5 ".hex()),
        ("base64", "Ym9keSA1"),
    ],
)
def test_dump_shows_bodies(
    capsys: pytest.CaptureFixture[str], shared: Path, form: str, body: str
) -> None:
    lines = output(capsys, "dump", shared, "--body", form, "--format", "jsonl").splitlines()
    message = json.loads(lines[5])
    assert message["body"].startswith(body)
    assert "bodyCut" not in message
    table = output(capsys, "dump", shared, "--key", "key-5", "--body", form, "--body-max", "7")
    assert table.splitlines()[2] == f"    {body[:14] if form != 'base64' else 'Ym9keSA1IA=='} …"
