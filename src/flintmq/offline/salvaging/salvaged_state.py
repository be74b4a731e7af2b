"""The state of a broker for a store whose records got other queue offsets."""

from pathlib import Path
from typing import Any, Final

from flintmq.format import fastjson
from flintmq.model.topics import SCHEDULE_TOPIC, WAITING_TOPIC
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.layout import StoreLayout
from flintmq.offline.salvaging.queue_numbering import QueueNumbering
from flintmq.offline.verify.verify_state import decode_state
from flintmq.store.files.interface import Files
from flintmq.store.upkeep.waiting_state import STATE_NAME

_BACKUP: Final = ".bak"
_OFFSETS: Final = "offsetTable"


def copy_state(
    layout: StoreLayout, output: Path, numbers: QueueNumbering, findings: Findings, *, files: Files
) -> int:
    """Copy the JSON files of a broker; offsets of consumers and delayed messages move along.

    A file that cannot be decoded is taken from its backup, else left out.  Return how many files
    there are now.
    """
    count = 0
    for path in layout.state_files:
        if path.name.endswith(_BACKUP):
            continue
        value, reason = decode_state(layout, path)
        if reason:
            value, backup_reason = decode_state(layout, path.with_name(path.name + _BACKUP))
            taken = "left out" if value is None else "taken from its backup"
            name = layout.name_of(path)
            findings.problem(Kind.STATE_FILE, name, None, f"{reason}; {taken} {backup_reason}")
        if value is None:
            continue
        if isinstance(value, dict):
            _move(path.name, value, numbers)
        target = output / "config" / path.name
        files.make_directory(target.parent)
        files.write(target, fastjson.dumps(value).encode())
        files.sync(target)
        count += 1
    if count:
        files.sync_directory(output / "config")
    return count


def _move_waiting(value: dict[str, Any], numbers: QueueNumbering) -> None:
    """Move how far messages that name a time are delivered; the new log has an end of its own."""
    value["logEnd"] = 0
    queues = value.get("queues")
    for queue_id, progress in queues.items() if isinstance(queues, dict) else ():
        if isinstance(progress, dict):
            for name in ("first", "offset"):
                progress[name] = _moved(numbers, WAITING_TOPIC, queue_id, progress.get(name))


def _move(name: str, value: dict[str, Any], numbers: QueueNumbering) -> None:
    if name == STATE_NAME:
        _move_waiting(value, numbers)
    table = value.get(_OFFSETS)
    if not isinstance(table, dict):
        return
    if name in ("consumerOffset.json", "lmqConsumerOffset.json"):
        for key, offsets in table.items():
            topic = str(key).partition("@")[0]
            if isinstance(offsets, dict):
                for queue_id, offset in offsets.items():
                    offsets[queue_id] = _moved(numbers, topic, queue_id, offset)
    elif name == "delayOffset.json":
        for level, offset in table.items():
            if str(level).isdecimal():
                table[level] = _moved(numbers, SCHEDULE_TOPIC, int(level) - 1, offset)


def _moved(numbers: QueueNumbering, topic: str, queue_id: object, offset: object) -> object:
    if not isinstance(offset, int) or not str(queue_id).lstrip("-").isdecimal():
        return offset
    return numbers.moved((topic, int(str(queue_id))), offset)
