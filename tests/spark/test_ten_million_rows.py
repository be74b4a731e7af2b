"""Ten million messages in one queue: counted, found at the far end, and their queue made anew.

The records are as small as records can be, and are written by numpy into memory where there is
some: a gigabyte in a few seconds.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from pyspark.sql import SparkSession

from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.stored.record_layout import (
    BLANK_SIZE,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
)
from flintmq.offline import find_store
from flintmq.offline.stat import stat
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from tests.kits.spark.light_spark import COMPILED_SETTINGS

pytestmark = pytest.mark.slow

COUNT: Final = 10_000_000
CHUNK: Final = 200_000
TOPIC: Final = "t"
Numbers = npt.NDArray[np.int64]
START_MS: Final = 1_700_000_000_000
RECORD: Final = encode_record(
    topic=TOPIC.encode(),
    queue_id=0,
    flag=0,
    sys_flag=0,
    queue_offset=0,
    physical_offset=0,
    born_timestamp=START_MS,
    born_host=bytes(8),
    store_timestamp=START_MS,
    store_host=bytes(8),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"",
    properties=b"",
)
LOG_FILE_SIZE: Final = len(RECORD) * COUNT + BLANK_SIZE
"""The whole log is one file, of a gigabyte as those of RocketMQ."""


@pytest.fixture(scope="module")
def store() -> Iterator[Path]:
    memory = Path("/dev/shm")
    has_memory = memory.is_dir() and shutil.disk_usage(memory).free > 4 * LOG_FILE_SIZE
    with tempfile.TemporaryDirectory(dir=memory if has_memory else None) as name:
        root = Path(name) / "store"
        queue = root / "consumequeue" / TOPIC / "0"
        for directory in (root / "commitlog", queue):
            directory.mkdir(parents=True)
        with (
            (root / "commitlog" / f"{0:020}").open("wb") as log,
            (queue / f"{0:020}").open("wb") as units,
        ):
            for first in range(0, COUNT, CHUNK):
                numbers = np.arange(first, first + CHUNK, dtype=np.int64)
                log.write(records(numbers))
                units.write(queue_units(numbers))
            log.truncate(LOG_FILE_SIZE)
        yield root


def records(numbers: Numbers) -> bytes:
    made = np.tile(np.frombuffer(RECORD, np.uint8), (len(numbers), 1))
    for at, column in (
        (QUEUE_OFFSET_AT, numbers),
        (PHYSICAL_OFFSET_AT, numbers * len(RECORD)),
    ):
        made[:, at : at + 8] = column.astype(">i8").view(np.uint8).reshape(-1, 8)
    return made.tobytes()


def queue_units(numbers: Numbers) -> bytes:
    made = np.zeros(len(numbers), [("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
    assert made.itemsize == UNIT_SIZE
    made["offset"], made["size"] = numbers * len(RECORD), len(RECORD)
    return made.tobytes()


def test_all_of_them_are_counted(spark: SparkSession, store: Path) -> None:
    (queue,) = stat(find_store(store)).queues
    assert (queue.min_offset, queue.max_offset) == (0, COUNT)
    session = spark.newSession()
    for name, value in COMPILED_SETTINGS.items():
        session.conf.set(name, value)
    table = session.read.format("flintmq").schema("queueOffset long").load(str(store))
    row = table.selectExpr("count(*)", "min(queueOffset)", "max(queueOffset)", "sum(queueOffset)")
    assert tuple(row.head() or ()) == (COUNT, 0, COUNT - 1, COUNT * (COUNT - 1) // 2)


def test_the_far_end_is_found_by_the_queue(spark: SparkSession, store: Path) -> None:
    table = spark.read.format("flintmq").option("filterPushdown", "true").load(str(store))
    wanted = f"topic = '{TOPIC}' AND queueId = 0 AND queueOffset >= {COUNT - 3}"
    found = table.where(wanted).select("queueOffset", "physicalOffset").collect()
    expected = [(number, number * len(RECORD)) for number in range(COUNT - 3, COUNT)]
    assert sorted(map(tuple, found)) == expected


def test_their_queue_is_made_anew_byte_for_byte(spark: SparkSession, store: Path) -> None:
    output = store.with_name("output")
    report = rebuild(spark, store, out=output, index=False)
    assert not list(report.findings)
    name = Path("consumequeue") / TOPIC / "0" / f"{0:020}"
    with (output / name).open("rb") as made, (store / name).open("rb") as known:
        while chunk := known.read(1 << 24):
            assert made.read(len(chunk)) == chunk
