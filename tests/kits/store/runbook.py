"""The page that leads through a broken store, and the commands in it."""

import re
import shlex
from pathlib import Path
from typing import Final

from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import (
    START_MS,
    flip,
    log_file,
    put,
    queue_file,
    small_config,
)

PAGE: Final = Path(__file__).parents[3] / "docs" / "operating" / "broken-store.md"
_BLOCK: Final = re.compile(
    r"<!-- runbook: (?P<kind>[\w ]+) -->\n```console\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


def commands(data: Path) -> list[tuple[str, list[str]]]:
    """Return for each command what is said about it, and its arguments, with another /data."""
    found = []
    for block in _BLOCK.finditer(PAGE.read_text()):
        for line in block["text"].splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ ").replace("/data", str(data)))
            assert program == "flintmq", line
            found.append((block["kind"], arguments))
    return found


def whole_store(root: Path) -> Path:
    """Make the store of the page as it was before."""
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        put(store, clock, 100)
    return root


def break_store(root: Path) -> None:
    """Damage a body in the middle of the log, lose a queue, and stop as a kill does."""
    flip(log_file(root, 1), 95)
    queue_file(root, 1).unlink()
    (root / "checkpoint").unlink()
    (root / "abort").touch()
