"""A store with messages that name a time of delivery."""

from collections import Counter
from typing import Any, Final

from flintmq.format.host import pack_host
from flintmq.format.stored.record import Record, decode_record
from flintmq.model.message import PutMessage
from flintmq.model.property_names import DELIVER_AT, TIMER_CANCELLED_ID, UNIQ_KEY
from flintmq.store.clock import Clock
from flintmq.store.config import StoreConfig
from flintmq.store.files.interface import Files
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult
from flintmq.testing import ROOT

TOPIC: Final = "orders"
QUEUE_ID: Final = 2
HOST: Final = pack_host("192.0.2.9", 10911)
STEP_COUNT_MAX: Final = 10_000


def open_waiting(files: Files, clock: Clock, **changes: Any) -> MessageStore:
    """Open a store with small files and a window of four messages."""
    values = {
        "root": ROOT,
        "commit_log_file_size": 16_384,
        "consume_queue_file_size": 400,
        "consume_queue_ext_file_size": 400,
        "hash_slot_count": 8,
        "index_entry_count": 64,
        "waiting_window_count": 4,
        **changes,
    }
    return MessageStore.open(StoreConfig(**values), files=files, clock=clock, background=False)


def message_to(
    topic: str, body: bytes, properties: dict[str, str], *, queue_id: int = QUEUE_ID
) -> PutMessage:
    """Return a message."""
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        born_host=HOST,
        store_host=HOST,
    )


def put_with(store: MessageStore, message_id: str, **properties: str) -> PutResult:
    """Put a message with such properties, by its id."""
    return store.put(message_to(TOPIC, message_id.encode(), {UNIQ_KEY: message_id, **properties}))


def put_at(store: MessageStore, message_id: str, due_ms: int) -> PutResult:
    """Put a message that is to be delivered at a time."""
    return put_with(store, message_id, **{DELIVER_AT: str(due_ms)})


def cancel(store: MessageStore, message_id: str, due_ms: int, *, topic: str = TOPIC) -> PutResult:
    """Put what cancels a message."""
    properties = {TIMER_CANCELLED_ID: message_id, DELIVER_AT: str(due_ms)}
    return store.put(message_to(topic, b"-", properties))


def deliver_all(store: MessageStore) -> None:
    """Do all that is to be done at this time."""
    for _ in range(STEP_COUNT_MAX):
        if not store.waiting.step(3):
            return
    raise AssertionError("delivery does not come to an end")


def stored_records(
    store: MessageStore, topic: str = TOPIC, queue_id: int = QUEUE_ID
) -> list[Record]:
    """Return everything in a queue."""
    found: list[Record] = []
    offset = store.min_offset_in_queue(topic, queue_id)
    while offset < store.max_offset_in_queue(topic, queue_id):
        result = store.get_messages(topic, queue_id, offset, 32)
        assert result is not None
        with result:
            found += [decode_record(view) for view in result]
            offset = result.next_begin_offset
    return found


def delivered(store: MessageStore) -> list[str]:
    """Return the ids of what was delivered, in this order."""
    return [bytes(record.body).decode() for record in stored_records(store)]


def delivered_counts(store: MessageStore) -> Counter[str]:
    """Return how often each message was delivered."""
    return Counter(delivered(store))
