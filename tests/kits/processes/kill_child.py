"""A process that puts messages until it is killed; the parent keeps what it acknowledged.

Prints one line for every message after its promise holds: sequence, topic, queue id, queue
offset, physical offset and the hash of the body.
"""

import hashlib
import random
import sys
from pathlib import Path

from flintmq.format.host import pack_host
from flintmq.model.message import PutMessage
from flintmq.store.config import FlushMode, StoreConfig
from flintmq.store.message_store import MessageStore
from tests.kits.store.waiting_puts import put_durably

HOST = pack_host("127.0.0.1", 10911)


def config_at(root: Path, flush_mode: FlushMode) -> StoreConfig:
    """Return the settings that parent and child share: small files, frequent checkpoints."""
    return StoreConfig(
        root=root,
        commit_log_file_size=256 * 1024,
        consume_queue_file_size=8000,
        hash_slot_count=500,
        index_entry_count=2000,
        flush_mode=flush_mode,
        flush_interval_ms=20,
        flush_queue_interval_ms=20,
        flush_queue_thorough_interval_ms=50,
    )


def body_of(sequence: int) -> bytes:
    """Return the body of a message, from which everything about it can be told."""
    return f"{sequence}:".encode() + random.Random(sequence).randbytes(sequence % 700)


def message_of(sequence: int) -> PutMessage:
    """Return message number ``sequence``."""
    return PutMessage(
        topic=f"kill-{sequence % 3}",
        queue_id=sequence % 4,
        body=body_of(sequence),
        properties={"KEYS": f"k{sequence}", "TAGS": f"t{sequence % 5}"},
        born_host=HOST,
        store_host=HOST,
    )


def main() -> None:
    """Put messages from the given number on, until somebody kills this process."""
    root, mode, sequence = Path(sys.argv[1]), FlushMode[sys.argv[2]], int(sys.argv[3])
    store = MessageStore.open(config_at(root, mode))
    while True:
        message = message_of(sequence)
        result = put_durably(store, message)
        assert result.ok, result
        digest = hashlib.sha256(message.body).hexdigest()
        fields = (
            sequence,
            message.topic,
            message.queue_id,
            result.queue_offset,
            result.physical_offset,
            digest,
        )
        sys.stdout.write(" ".join(map(str, fields)) + "\n")
        sys.stdout.flush()
        sequence += 1


if __name__ == "__main__":
    main()
