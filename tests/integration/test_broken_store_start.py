"""The last step of docs/operating/broken-store.md: a broker serves what was salvaged."""

from contextlib import closing
from pathlib import Path

from flintmq.cli.main import run
from tests.kits.processes.serve_command import READY
from tests.kits.processes.serve_process import ServeProcess
from tests.kits.store.offline_stores import ENTRIES, LOG_FILE_SIZE, QUEUE_FILE_SIZE, SLOTS, check
from tests.kits.store.runbook import break_store, commands, whole_store


def test_a_broker_starts_with_the_salvaged_store(tmp_path: Path) -> None:
    break_store(whole_store(tmp_path / "store"))
    saved = tmp_path / "saved" / "store"
    assert run(["store", "salvage", str(tmp_path / "store"), "--out", str(saved)]) == 1
    ((_, arguments),) = [found for found in commands(tmp_path) if found[0] == "start"]
    settings = {
        "mappedFileSizeCommitLog": LOG_FILE_SIZE,
        "mappedFileSizeConsumeQueue": QUEUE_FILE_SIZE,
        "maxHashSlotNum": SLOTS,
        "maxIndexNum": ENTRIES,
    }
    # The files of the test are smaller than a broker's are, and ports may be taken.
    more = [f"--set={key}={value}" for key, value in settings.items()]
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    with closing(ServeProcess(*arguments, *ports, *more)) as process:
        process.wait_for(READY)
        ended = process.stop()
    assert ended.code == 0, ended.err
    assert "recovered: clean exit" in ended.err
    assert check(saved).record_count >= 99
