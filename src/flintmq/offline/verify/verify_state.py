"""Checking the small files of a store: checkpoint and JSON state."""

from pathlib import Path
from typing import Final

from flintmq.format import fastjson
from flintmq.format.errors import CorruptCheckpointError, StateTextError
from flintmq.format.stored.checkpoint import FILE_SIZE, Checkpoint, decode_checkpoint
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.layout import StoreLayout

STATE_SIZE_MAX: Final = 256 << 20
EMPTY_STATE: Final = "is empty"
_BACKUP: Final = ".bak"


def read_checkpoint(layout: StoreLayout) -> Checkpoint | str:
    """Return what the checkpoint says, or why it says nothing."""
    try:
        return decode_checkpoint(layout.files.read(layout.checkpoint, limit=FILE_SIZE + 1))
    except FileNotFoundError:
        return "is missing"
    except CorruptCheckpointError as error:
        return error.reason


def check_checkpoint(
    layout: StoreLayout, checkpoint: Checkpoint | str, log_end: int, findings: Findings
) -> None:
    """Check that the checkpoint could be read, and that the log has all it says was flushed.

    It must have been read before the log was: a running broker goes on.
    """
    name = layout.name_of(layout.checkpoint)
    if isinstance(checkpoint, str):
        if layout.has_checkpoint:
            findings.problem(Kind.CHECKPOINT, name, None, checkpoint)
        else:
            reason = "is missing; a broker makes a new one and reads the whole log once"
            findings.note(Kind.CHECKPOINT, name, None, reason)
        return
    marks = checkpoint.marks
    if marks is not None and marks.log_flushed > log_end:
        reason = f"the log was flushed up to {marks.log_flushed} and ends at {log_end}"
        findings.problem(Kind.CHECKPOINT, name, None, reason)


def check_state_files(layout: StoreLayout, findings: Findings) -> int:
    """Check that every JSON state file can be decoded; return how many there are."""
    for path in layout.state_files:
        reason = decode_state(layout, path)[1]
        if not reason:
            continue
        name = layout.name_of(path)
        if path.name.endswith(_BACKUP):
            findings.note(Kind.STATE_FILE, name, None, f"{reason}; it is only the backup")
        else:
            findings.problem(Kind.STATE_FILE, name, None, reason)
    return len(layout.state_files)


def known_topics(layout: StoreLayout) -> frozenset[str] | None:
    """Return the topics the broker knows, None when that cannot be read."""
    value, _ = decode_state(layout, layout.root / "config" / "topics.json")
    table = value.get("topicConfigTable") if isinstance(value, dict) else None
    return frozenset(map(str, table)) if isinstance(table, dict) and table else None


def decode_state(layout: StoreLayout, path: Path) -> tuple[object, str]:
    """Return the value of a state file, and why it has none; neither where there is no file."""
    try:
        content = layout.files.read(path, limit=STATE_SIZE_MAX + 1)
    except FileNotFoundError:
        return None, ""
    if len(content) > STATE_SIZE_MAX:
        return None, f"more than {STATE_SIZE_MAX} bytes"
    if not content.strip():
        return None, EMPTY_STATE
    try:
        return fastjson.loads(content), ""
    except StateTextError as error:
        return None, f"cannot be decoded: {error}"
