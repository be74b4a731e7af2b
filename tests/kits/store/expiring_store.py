"""A store whose log is filled and whose oldest file is deleted."""

from flintmq.store.message_store import MessageStore
from tests.kits.store.store_kit import (
    message,
)


def fill_log(store: MessageStore, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        store.put(message(b"%d" % number + bytes(1000), queue_id=queue_id))


def delete_oldest(store: MessageStore) -> None:
    store.dispatch()
    store.checkpoint()
    files = store.log.files
    assert files.delete_expired_by_time(0, forced_after_ms=0, immediate=True, limit=1) == 1
    store.delete_expired_views()
