"""The store in a minute: write, read, recover, verify.  ``make demo-store`` starts it."""

import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flintmq.format.host import pack_host
from flintmq.format.stored.record import decode_record
from flintmq.model.message import PutMessage
from flintmq.store.config import FlushMode, StoreConfig
from flintmq.store.message_store import MessageStore

HOST = pack_host("127.0.0.1", 10911)
COUNT = 20_000


def order(number: int) -> PutMessage:
    """Return one message of a small shop."""
    return PutMessage(
        topic="orders",
        queue_id=number % 4,
        body=f'{{"order": {number}, "amount": {number % 500}}}'.encode(),
        properties={"KEYS": f"order-{number}", "TAGS": "created" if number % 3 else "paid"},
        born_timestamp=int(time.time() * 1000),
        born_host=HOST,
        store_host=HOST,
    )


def main() -> int:
    """Run the demonstration; the exit code is that of the verification."""
    root = Path(tempfile.mkdtemp(prefix="flintmq-demo-"))
    config = StoreConfig(
        root=root / "store",
        commit_log_file_size=1 << 20,
        consume_queue_file_size=60_000,
        hash_slot_count=5_000,
        index_entry_count=20_000,
        flush_mode=FlushMode.ASYNC,
    )
    print(f"store: {config.root}")
    try:
        with MessageStore.open(config) as store:
            began = time.perf_counter()
            for number in range(COUNT):
                result = store.put(order(number))
                assert result.ok, result
            store.dispatch()
            took = time.perf_counter() - began
            print(f"write: {COUNT} messages in {took:.2f} s ({COUNT / took:,.0f} a second)")
            found = store.get_messages("orders", 1, 1000, 3)
            assert found is not None
            with found:
                for view in found:
                    record = decode_record(view)
                    print(f"read:  queue 1 offset {record.queue_offset}: {bytes(record.body)!r}")
            answer = store.query("orders", "order-777", 10, 0, 1 << 62)
            print(f"query: key order-777 is in {len(answer.slices)} message")
            answer.release()
            # What a crash leaves: a copy of the directory while the store is running.
            shutil.copytree(config.root, root / "crashed")
        shutil.rmtree(root / "crashed" / "consumequeue" / "orders" / "2")
        crashed = dataclasses.replace(config, root=root / "crashed")
        with MessageStore.open(crashed) as store:
            print(f"recover a crash with queue 2 deleted: {store.recovery_report.summary}")
            assert store.max_offset_in_queue("orders", 2) == COUNT // 4
        command = [str(Path(sys.executable).with_name("flintmq")), "store", "verify"]
        return subprocess.run([*command, str(crashed.root)], check=False).returncode
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
