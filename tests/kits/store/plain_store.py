"""A store in a directory that has no machine code and nothing in the background."""

from contextlib import AbstractContextManager
from pathlib import Path

from flintmq.store.config import StoreConfig
from flintmq.store.message_store import MessageStore
from flintmq.testing import ManualClock


def opened_without_machine_code(
    root: Path, *, log_file_size: int
) -> AbstractContextManager[MessageStore]:
    """Open a store with small indexes, at a time that stands still."""
    config = StoreConfig(
        root=root,
        commit_log_file_size=log_file_size,
        hash_slot_count=1000,
        index_entry_count=4000,
        machine_code=False,
    )
    return MessageStore.open(config, clock=ManualClock(1_800_000_000_000), background=False)
