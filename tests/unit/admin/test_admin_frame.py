"""What all commands share: forms of output, exit codes, contexts, asking before a change."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flintmq.admin import Admin, AsyncAdmin
from flintmq.cli.admin.command_table import COMMANDS
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, run_flintmq


def test_all_forms_of_output_hold_the_same_rows(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    name = "a-topic-with-a-name-that-is-longer-than-the-thirty-two-columns-of-mqadmin"
    cluster.create_topic(name)
    rows = cli.rows("topicList")
    assert yaml.safe_load(cli.run("topicList", "-o", "yaml").out)["rows"] == rows
    lines = cli.run("topicList", "-o", "jsonl").out.splitlines()
    assert list(map(json.loads, lines)) == rows
    assert list(csv.DictReader(io.StringIO(cli.run("-o", "csv", "topicList").out))) == rows
    table = cli.run("topicList").out.splitlines()
    assert table == ["TOPIC", *(row["topic"] for row in rows)]


def test_what_is_not_there_ends_with_3_and_one_line(cli: AdminCli) -> None:
    done = cli.run("updateTopic", "-t", "some", "-c", "NoCluster", "--yes")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        "flintmq: there is no cluster 'NoCluster'; the name server knows DefaultCluster\n"
    )


def test_a_server_that_does_not_answer_ends_with_1_and_the_next_step() -> None:
    done = run_flintmq("admin", "-n", "127.0.0.1:1", "topicList")
    assert done.code == 1
    assert "no name server can be reached" in done.err
    assert "see -n, --context and NAMESRV_ADDR" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_trace_is_shown_only_when_asked_for() -> None:
    done = run_flintmq("admin", "-n", "127.0.0.1:1", "--debug", "topicList")
    assert "Traceback" in done.err


@pytest.mark.parametrize(
    "arguments",
    [("topicList", "--bad"), ("updateTopic", "-t", "x", "-b", "a:1", "-c", "b", "--yes"), ("no",)],
)
def test_wrong_usage_ends_with_2(cli: AdminCli, arguments: tuple[str, ...]) -> None:
    assert cli.run(*arguments).code == 2


def test_a_change_without_yes_and_without_a_terminal_is_not_done(cli: AdminCli) -> None:
    done = cli.run("updateTopic", "-t", "asked", "-c", "DefaultCluster")
    assert done.code == 2
    assert "nothing -> " in done.err
    assert "say --yes" in done.err
    assert {"topic": "asked"} not in cli.rows("topicList")


class Terminal(io.StringIO):
    """Somebody at a terminal who types this."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2)])
def test_at_a_terminal_a_change_is_asked_for(
    cli: AdminCli, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    name = f"agreed-{code}"
    done = cli.run("updateTopic", "-t", name, "-c", "DefaultCluster")
    assert done.code == code
    assert "Do it?" in done.out + done.err
    assert ({"topic": name} in cli.rows("topicList")) is (code == 0)


def test_names_of_commands_may_be_written_in_any_case(cli: AdminCli) -> None:
    assert cli.run("TOPICLIST").code == 0


def test_watch_asks_again_and_again(cli: AdminCli) -> None:
    done = cli.run("clusterList", "-o", "jsonl", "--watch", "0.1", "--watch-count", "3")
    assert len(done.out.splitlines()) == 3
    for command in (("clusterList",), ("clusterRT", "-a", "1")):
        again = cli.run(*command, "-o", "jsonl", "-i", "0.1", "--watch-count", "2")
        assert len(again.out.splitlines()) == 2


def test_a_context_stands_for_name_servers_and_keys(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.yml"
    keys.write_text("accessKey: somebody\nsecretKey: very-secret\n")
    keys.chmod(0o644)
    add = ("context", "add", "here", "-n", cluster.namesrv, "--credentials-file", str(keys))
    refused = run_flintmq(*add)
    assert (refused.code, refused.out) == (3, "")
    assert "chmod 600" in refused.err
    keys.chmod(0o600)
    assert run_flintmq(*add).code == 0
    assert run_flintmq("context", "add", "other", "-n", "127.0.0.1:1").code == 0
    listed = run_flintmq("context", "list").out
    assert "very-secret" not in listed
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["*", "other"]
    assert run_flintmq("admin", "topicList").code == 0
    assert run_flintmq("context", "use", "other").code == 0
    assert run_flintmq("admin", "topicList").code == 1
    assert run_flintmq("admin", "--context", "here", "topicList").code == 0
    assert run_flintmq("context", "use", "nowhere").code == 3
    assert run_flintmq("context", "remove", "other").code == 0


def test_every_operation_has_a_blocking_twin() -> None:
    asynchronous = {
        name
        for name in dir(AsyncAdmin)
        if not name.startswith("_") and callable(getattr(AsyncAdmin, name))
    }
    inner = {"ask", "ask_all", "ask_namesrv", "client", "close", "start", "name_servers"}
    assert asynchronous - inner - {"group_places"} <= set(dir(Admin))


def test_the_blocking_face_does_the_same(cluster: EmbeddedCluster) -> None:
    with Admin(namesrv=cluster.namesrv) as admin:
        assert "TBW102" in admin.topics()
        assert [one.broker for one in admin.all_places()] == ["broker-a"]


def test_help_is_shown_without_loading_what_commands_need() -> None:
    code = (
        "import sys; from flintmq.cli.main import run; code = run(['admin', '--help']); "
        "print('loaded:', *sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, loaded = done.stdout.partition("loaded:")
    assert "updateTopic" in shown
    needless = {"asyncio", "rich", "yaml", "flintmq.client", "flintmq.admin", "flintmq.offline"}
    assert needless.intersection(loaded.split()) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    script = run_flintmq("completion", shell)
    assert (script.code, "_FLINTMQ_COMPLETE" in script.out) == (0, True)


def test_every_command_has_help_and_can_be_loaded(cli: AdminCli) -> None:
    shown = cli.run("--help").out
    for row in COMMANDS:
        assert row.name in shown
        done = cli.run(row.name, "--help")
        assert done.code == 0, row.name
        assert "Usage: flintmq admin" in done.out
