"""Bodies that hold whole records never become rows, wherever a file is cut."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.format.consume_queue import UNIT
from flintmq.format.record import BLANK_MAGIC, encode_record
from flintmq.model.message import Message
from flintmq.spark import CorruptLogError, SplitError
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.spark.reading import offsets, read
from tests.unit.offline.stores import HOST, START_MS, flip, overwrite, small_config

FILE_SIZE = 32768
BODY_AT = 88
"""Where the body of a record with IPv4 hosts starts."""

BODY_SIZE = 1500
TOPIC = "orders"
SPLITS = (1, 2, 7, 40)

Claim = tuple[bytes, int]
"""The topic and the queue offset that a false record claims."""

CLAIMS: dict[str, Claim] = {
    "a queue offset that is taken": (TOPIC.encode(), 3),
    "a queue offset that is still free": (TOPIC.encode(), 1 << 40),
    "a topic that is not there": (b"nowhere", 0),
}


def false_record(claim: Claim, offset: int, body: bytes) -> bytes:
    """Return a record that is right in every respect for its place in the log."""
    topic, queue_offset = claim
    return encode_record(
        topic, 0, 0, queue_offset, offset, 0, START_MS, HOST, START_MS, HOST, 0, 0, body, b""
    )


def one_record(claim: Claim, offset: int) -> bytes:
    """Return a body with a whole record in its middle."""
    filler = b"." * 400
    return (filler + false_record(claim, offset + 400, b"false")).ljust(BODY_SIZE, b".")


def chain(claim: Claim, offset: int) -> bytes:
    """Return a body of false records, the last of which ends just where the true record does."""
    body = b""
    for _ in range(4):
        body += false_record(claim, offset + len(body), b"false" * 20)
    # The tail of the true record, its topic without properties, is also the tail of the false.
    filler = b"." * (BODY_SIZE - len(body) - BODY_AT)
    last = false_record((TOPIC.encode(), claim[1]), offset + len(body), filler)
    return (body + last)[:BODY_SIZE]


def blank(claim: Claim, offset: int) -> bytes:
    """Return a body with a blank that reaches to the end of the file."""
    left = FILE_SIZE - (offset + 400) % FILE_SIZE
    return (b"." * 400 + struct.pack(">ii", left, BLANK_MAGIC)).ljust(BODY_SIZE, b".")


BODIES: dict[str, Callable[[Claim, int], bytes]] = {
    "record": one_record,
    "chain": chain,
    "blank": blank,
}


def hostile_store(root: Path, make_body: Callable[[Claim, int], bytes], claim: Claim) -> list[int]:
    """Write a store of three files and return where its records are."""
    config = small_config(root, commit_log_file_size=FILE_SIZE)
    clock = ManualClock(START_MS)
    found = []
    with MessageStore(config, clock=clock, background=False) as store:
        end = 0
        for _ in range(50):
            size = 91 + BODY_SIZE + len(TOPIC)
            if FILE_SIZE - end % FILE_SIZE < size + 8:
                end += -end % FILE_SIZE
            body = make_body(claim, end + BODY_AT)
            message = Message(topic=TOPIC, body=body, born_host=HOST, store_host=HOST)
            result = store.put(message)
            assert (result.physical_offset, result.size) == (end, size)
            found.append(end)
            end += size
            clock.advance(1000)
        store.dispatch()
    return found


@pytest.mark.parametrize("queues", ["with queues", "without queues"])
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("body", BODIES)
def test_false_records_are_no_rows(tmp_path: Path, body: str, claim: str, queues: str) -> None:
    true = hostile_store(tmp_path, BODIES[body], CLAIMS[claim])
    if queues == "without queues":
        shutil.rmtree(tmp_path / "consumequeue")
    for splits in SPLITS:
        assert offsets(read(tmp_path, splits=splits)) == true


DAMAGES = {"magic": 4, "size": 3, "offset": 35, "body length": BODY_AT - 1}
"""The byte of a record in which a bit is flipped."""


@pytest.mark.parametrize("queues", ["with queues", "without queues"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("body", BODIES)
def test_false_records_in_a_damaged_one_are_no_rows(
    tmp_path: Path, body: str, claim: str, damage: str, queues: str
) -> None:
    true = hostile_store(tmp_path, BODIES[body], CLAIMS[claim])
    if queues == "without queues":
        shutil.rmtree(tmp_path / "consumequeue")
    for harmed in (true[0], true[5], true[25]):
        file = tmp_path / "commitlog" / f"{harmed - harmed % FILE_SIZE:020}"
        flip(file, harmed % FILE_SIZE + DAMAGES[damage])
        for splits in (1, 7):
            rows = read(tmp_path, splits=splits, onCorruptRecord="row")
            damaged = [row for row in rows if row["_corruptReason"] is not None]
            assert offsets(rows) == true
            assert offsets(damaged) == [harmed]
            with pytest.raises(CorruptLogError):
                read(tmp_path, splits=splits)
        flip(file, harmed % FILE_SIZE + DAMAGES[damage])


def test_a_unit_that_leads_into_a_body_is_found_out(tmp_path: Path) -> None:
    """Nothing but a broker writes units; should one lie, reading fails and says so."""
    claim = (TOPIC.encode(), 7)
    true = hostile_store(tmp_path, one_record, claim)
    cut = FILE_SIZE // 2
    host = max(offset for offset in true if offset <= cut - 400 - BODY_AT)
    false = host + BODY_AT + 400
    size = len(false_record(claim, false, b"false"))
    queue = tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020}"
    overwrite(queue, 7 * UNIT.size, UNIT.pack(false, size, 0))
    with pytest.raises(SplitError, match="one of them is damaged"):
        read(tmp_path, splitSize=str(false - 1))
    assert offsets(read(tmp_path, splits=1)) == true
