"""The log check of soak runs tells what faults explain from what they do not."""

import datetime
from pathlib import Path

from soak.log_check import Window, check_log

AT = "2026-11-16T10:00:05.000"
SECOND = datetime.datetime.fromisoformat(AT).timestamp()
LONG_TURN = (
    "WARNING flintmq.broker.turn_watchdog: turn of the loop took long: cause=X ms={} count=1"
)
FULL = "ERROR flintmq.store.files: x could not be written: reason=/a: no room for 32 bytes"


def kinds(tmp_path: Path, *lines: str, windows: tuple[Window, ...] = ()) -> list[str]:
    path = tmp_path / "broker.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return [finding.kind for finding in check_log(path, windows)]


def test_an_error_and_a_traceback_are_found(tmp_path: Path) -> None:
    lines = (f"{AT} INFO a: fine", f"{AT} ERROR a: bad", "    Traceback (most recent call last):")
    assert kinds(tmp_path, *lines) == ["error in a log", "traceback"]


def test_a_long_turn_is_found_unless_the_process_was_stopped_then(tmp_path: Path) -> None:
    line = f"{AT} {LONG_TURN.format(2500)}"
    stopped = Window("stop", SECOND - 2.4, SECOND - 0.1)
    earlier = Window("stop", SECOND - 60, SECOND - 50)
    assert kinds(tmp_path, line) == ["turn over one second"]
    assert kinds(tmp_path, line, windows=(earlier,)) == ["turn over one second"]
    assert kinds(tmp_path, line, windows=(stopped,)) == []
    assert kinds(tmp_path, f"{AT} {LONG_TURN.format(999)}") == []


def test_a_full_disk_is_expected_only_while_it_was_full(tmp_path: Path) -> None:
    line = f"{AT} {FULL}"
    assert kinds(tmp_path, line) == ["error in a log"]
    assert kinds(tmp_path, line, windows=(Window("full disk", SECOND - 1, SECOND),)) == []
    assert kinds(tmp_path, line, windows=(Window("kill", SECOND - 1, SECOND),)) == [
        "error in a log"
    ]
