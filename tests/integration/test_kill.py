"""A broker killed with -9 under load, again and again, loses no message it acknowledged."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from flintmq.format.stored.record import decode_record
from flintmq.store.config import FlushMode
from flintmq.store.message_store import MessageStore
from tests.kits.processes.kill_child import body_of, config_at

KILL_COUNT = 20
"""On one store directory, for each flush mode."""

PROJECT = Path(__file__).parents[2]


class Acknowledged(NamedTuple):
    sequence: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    digest: str


def _run_and_kill(root: Path, mode: FlushMode, first: int, count: int) -> list[Acknowledged]:
    """Start the child, let it acknowledge ``count`` messages, and kill it in mid-work."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.kits.processes.kill_child",
            str(root),
            mode.name,
            str(first),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert child.stdout is not None
    lines = []
    try:
        for line in child.stdout:
            lines.append(line)
            if len(lines) == count:
                child.send_signal(signal.SIGKILL)
                break
        # What it had said before it died counts too; the last line may be cut.
        lines += [line for line in child.stdout if line.endswith("\n")]
    finally:
        child.kill()
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL, "the child died by itself"
    acknowledged = []
    for line in lines:
        sequence, topic, queue_id, queue_offset, physical_offset, digest = line.split()
        acknowledged.append(
            Acknowledged(
                int(sequence), topic, int(queue_id), int(queue_offset), int(physical_offset), digest
            )
        )
    return acknowledged


def _served(store: MessageStore) -> dict[tuple[str, int, int], tuple[int, str, int]]:
    """Return (topic, queue, offset) → (physical offset, body hash, sequence), all it serves."""
    served = {}
    for queue in store.queues:
        offset = queue.min_offset
        assert offset == 0
        while offset < queue.max_offset:
            result = store.get_messages(queue.topic, queue.queue_id, offset, 32)
            assert result is not None
            with result:
                assert result.queue_offsets == list(range(offset, offset + len(result)))
                for view in result:
                    record = decode_record(view)
                    assert record.crc_ok
                    assert record.topic == queue.topic
                    assert record.queue_id == queue.queue_id
                    sequence = int(bytes(record.body).partition(b":")[0])
                    assert record.body == body_of(sequence)
                    served[(record.topic, record.queue_id, record.queue_offset)] = (
                        record.physical_offset,
                        hashlib.sha256(record.body).hexdigest(),
                        sequence,
                    )
                offset = result.next_begin_offset
    return served


@pytest.mark.parametrize("mode", [FlushMode.ASYNC, FlushMode.SYNC])
def test_kill_9_loses_nothing_that_was_acknowledged(mode: FlushMode, tmp_path: Path) -> None:
    root = tmp_path / "store"
    rng = random.Random(20)
    oracle: list[Acknowledged] = []
    sequence = 0
    for _ in range(KILL_COUNT):
        oracle += _run_and_kill(root, mode, sequence, rng.randrange(1, 400))
        # Looked at in a copy: the next child finds the store as this one left it.
        copy = shutil.copytree(root, tmp_path / "copy")
        with MessageStore.open(config_at(copy, mode), background=False) as store:
            assert not store.recovery_report.clean_exit
            served = _served(store)
            assert store.index is not None
            for one in oracle:
                assert store.index.query(one.topic, f"k{one.sequence}", 9, 0, 1 << 62) == [
                    one.physical_offset
                ]
        shutil.rmtree(copy)
        for one in oracle:
            assert served[(one.topic, one.queue_id, one.queue_offset)] == (
                one.physical_offset,
                one.digest,
                one.sequence,
            )
        # A message may be there without its acknowledgement having been heard, one per kill.
        assert len(oracle) <= len(served) <= len(oracle) + KILL_COUNT
        sequence = max(number for _, _, number in served.values()) + 1
