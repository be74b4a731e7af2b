"""Small stores for tests, written by the engine, and ways to look at and to harm their files."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.host import pack_host
from flintmq.model.message import PutMessage
from flintmq.offline import Findings, Severity, VerifyReport, find_store, verify
from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock

HOST = pack_host("10.0.0.1", 10911)
LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
START_MS = 1_700_000_000_456

LOG_FILE_SIZE = 8192
QUEUE_FILE_SIZE = 400
SLOTS = 23
ENTRIES = 70


def small_config(root: Path, **settings: Any) -> StoreConfig:
    """Return settings with files so small that a few dozen messages roll every kind."""
    config = StoreConfig(
        root=root,
        commit_log_file_size=LOG_FILE_SIZE,
        consume_queue_file_size=QUEUE_FILE_SIZE,
        hash_slot_count=SLOTS,
        index_entry_count=ENTRIES,
    )
    return dataclasses.replace(config, **settings)


def message(
    number: int,
    *,
    topic: str = "orders",
    queues: int = 2,
    properties: Mapping[str, str] | None = None,
) -> PutMessage:
    """Return message ``number``, with a tag and two keys unless other properties are given."""
    if properties is None:
        properties = {
            "UNIQ_KEY": f"AC11000218B400000000{number:012X}",
            "KEYS": f"key-{number}",
            "TAGS": f"Tag{number % 3}",
        }
    return PutMessage(
        topic=topic,
        queue_id=number % queues,
        body=b"body %d " % number * 12,
        properties=dict(properties),
        born_timestamp=START_MS,
        born_host=HOST,
        store_host=HOST,
    )


def put(store: MessageStore, clock: ManualClock, count: int, *, first: int = 0) -> None:
    """Put and dispatch ``count`` messages, one a second."""
    for number in range(first, first + count):
        assert store.put(message(number)).ok
        clock.advance(1000)
    store.dispatch()


def make_store(root: Path, count: int = 100, **settings: Any) -> Path:
    """Write a store of ``count`` messages and stop cleanly."""
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root, **settings), clock=clock, background=False) as store:
        put(store, clock, count)
    return root


def check(root: Path, **options: Any) -> VerifyReport:
    """Verify a store."""
    return verify(find_store(root), delay_levels=LEVELS, **options)


def problems(report: VerifyReport | Findings) -> dict[str, int]:
    """Return how many problems of which kind there are."""
    return _counts(report, Severity.PROBLEM)


def notes(report: VerifyReport | Findings) -> dict[str, int]:
    """Return how many notes of which kind there are."""
    return _counts(report, Severity.NOTE)


def _counts(report: VerifyReport | Findings, severity: Severity) -> dict[str, int]:
    findings = report if isinstance(report, Findings) else report.findings
    return {
        kind.value: count for (found, kind), count in findings.counts.items() if found is severity
    }


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Write over bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, bit: int = 0x01) -> None:
    """Flip a bit of a file."""
    (byte,) = path.read_bytes()[position : position + 1]
    overwrite(path, position, bytes([byte ^ bit]))


def log_file(root: Path, number: int) -> Path:
    """Return file ``number`` of the log."""
    return sorted((root / "commitlog").iterdir())[number]


def queue_file(root: Path, queue_id: int, number: int = 0, *, topic: str = "orders") -> Path:
    """Return file ``number`` of a queue."""
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[number]


def index_file(root: Path, number: int) -> Path:
    """Return file ``number`` of the index."""
    return sorted((root / "index").iterdir())[number]


def fingerprint(root: Path) -> dict[str, tuple[int, str]]:
    """Return the modification time and a digest of everything below a directory."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(root.rglob("*"))
    }


def content(root: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
