"""Bodies that hold whole records never become rows, wherever a file is cut.

The serial scan and the splits of Spark look for the next record behind damage by the same rule.
"""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.format.stored.consume_queue import UNIT
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.stored.record_layout import BLANK_MAGIC
from flintmq.model.message import PutMessage
from flintmq.offline import find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan
from flintmq.spark import CorruptLogError, SplitError
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.spark.reading import offsets, read
from tests.kits.store.offline_stores import HOST, START_MS, flip, overwrite, small_config

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
    with MessageStore.open(config, clock=clock, background=False) as store:
        end = 0
        for _ in range(50):
            size = 91 + BODY_SIZE + len(TOPIC)
            if FILE_SIZE - end % FILE_SIZE < size + 8:
                end += -end % FILE_SIZE
            body = make_body(claim, end + BODY_AT)
            message = PutMessage(topic=TOPIC, body=body, born_host=HOST, store_host=HOST)
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
        assert scanned(tmp_path) == ([offset for offset in true if offset != harmed], [harmed])
        flip(file, harmed % FILE_SIZE + DAMAGES[damage])


def scanned(store: Path) -> tuple[list[int], list[int]]:
    """Return where the serial scan finds records, and where damage."""
    layout = find_store(store)
    with Regions(layout.files) as regions:
        scan = LogScan(LogFiles(layout, regions), check_crc=True)
        records = [record.physical_offset for batch in scan.batches() for record in batch]
    return records, [damage.start for damage in scan.damages]


def harm_lengths(store: Path, offset: int) -> None:
    """Leave a record no length that tells where it ends."""
    for place in ("size", "body length"):
        flip(
            store / "commitlog" / f"{offset - offset % FILE_SIZE:020}",
            offset % FILE_SIZE + DAMAGES[place],
        )


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("body", BODIES)
def test_queues_tell_where_records_go_on_when_no_length_does(
    tmp_path: Path, body: str, claim: str
) -> None:
    true = hostile_store(tmp_path, BODIES[body], CLAIMS[claim])
    harmed = true[25]
    harm_lengths(tmp_path, harmed)
    left = [offset for offset in true if offset != harmed]
    assert offsets(read(tmp_path, splits=1, onCorruptRecord="skip")) == left
    assert scanned(tmp_path) == (left, [harmed])


def test_queues_that_are_wrong_do_not_cost_the_serial_scan_a_record(tmp_path: Path) -> None:
    """A rebuild is for stores like that."""
    true = hostile_store(tmp_path, lambda claim, offset: b"." * BODY_SIZE, (TOPIC.encode(), 0))
    for file in (tmp_path / "consumequeue" / TOPIC / "0").iterdir():
        units = file.stat().st_size // UNIT.size
        file.write_bytes(UNIT.pack(true[0], 7, 0) * units)
    harm_lengths(tmp_path, true[25])
    assert scanned(tmp_path) == ([*true[:25], *true[26:]], [true[25]])


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
