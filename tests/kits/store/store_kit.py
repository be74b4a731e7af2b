"""A small store on simulated files, for the unit tests of its parts."""

from dataclasses import replace
from typing import Any, Final

from flintmq.format.host import pack_host
from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.record import Record, decode_record
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store.config import FlushMode, StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.store.results import GetResult, GetStatus
from flintmq.testing import ROOT, ManualClock, SimulatedFiles

BORN_HOST: Final = pack_host("192.168.1.10", 54321)
STORE_HOST: Final = pack_host("10.0.0.1", 10911)
BORN_MS: Final = 1_700_000_000_123
STORE_MS: Final = 1_700_000_000_456
LOG: Final = ROOT / "commitlog"
SMALL: Final = StoreConfig(
    root=ROOT,
    commit_log_file_size=4096,
    consume_queue_file_size=400,
    consume_queue_ext_file_size=200,
    hash_slot_count=13,
    index_entry_count=40,
    max_message_size=3000,
)


def message(body: bytes = b"body", **changes: Any) -> PutMessage:
    """Return a message for T/0, changed as wanted."""
    fields: dict[str, Any] = {
        "topic": "T",
        "body": body,
        "born_timestamp": BORN_MS,
        "born_host": BORN_HOST,
        "store_host": STORE_HOST,
    }
    return PutMessage(**{**fields, **changes})


def batch(
    *bodies: bytes,
    properties: dict[str, str] | None = None,
    properties_of_batch: dict[str, str] | None = None,
    **changes: Any,
) -> MessageBatch:
    """Return a batch for T/0 whose items all have ``properties``."""
    text = encode_properties(properties or {})
    fields: dict[str, Any] = {
        "topic": "T",
        "body": encode_batch(BatchItem(0, body, text) for body in bodies),
        "properties": properties_of_batch or {},
        "born_timestamp": BORN_MS,
        "born_host": BORN_HOST,
        "store_host": STORE_HOST,
    }
    return MessageBatch(**{**fields, **changes})


def new_files(**options: Any) -> SimulatedFiles:
    return SimulatedFiles(clock=ManualClock(STORE_MS), **options)


def open_store(files: SimulatedFiles | None = None, **settings: Any) -> MessageStore:
    """Open a store that the test drives by hand."""
    files = files if files is not None else new_files()
    return MessageStore.open(
        replace(SMALL, **settings), files=files, clock=files.clock, background=False
    )


def sync_store(files: SimulatedFiles | None = None, **settings: Any) -> MessageStore:
    return open_store(files, flush_mode=FlushMode.SYNC, **settings)


def turn(store: MessageStore, ms: int) -> None:
    """Let time pass for a store."""
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(ms)


def read(store: MessageStore, topic: str = "T", queue_id: int = 0, offset: int = 0) -> GetResult:
    result = store.get_messages(topic, queue_id, offset, 32)
    assert result is not None
    return result


def records(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Return every message of a queue."""
    found: list[Record] = []
    offset = store.min_offset_in_queue(topic, queue_id)
    while True:
        with read(store, topic, queue_id, offset) as result:
            if result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
                return found
            found += [decode_record(view) for view in result]
            offset = result.next_begin_offset


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in records(store, topic, queue_id)]


def log_bytes(store: MessageStore, start: int, size: int) -> bytes:
    """Return bytes of the log, whether they are readable yet or not."""
    file = store.log.files.find(start)
    assert file is not None
    return bytes(file.view[start - file.first_offset : start - file.first_offset + size])


def physical_offset_of(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Return where a queue's message lies in the log, 0 when it is absent."""
    queue = store.queues.get(topic, queue_id)
    unit = queue.unit_at(offset) if queue is not None else None
    return unit[0] if unit is not None else 0
