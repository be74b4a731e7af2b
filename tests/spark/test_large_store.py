"""A store of more than one GiB, in several files: however it is cut, the answers are the same.

The serial tools read it once; scan, verify and rebuild on Spark have to agree with them.
"""

import filecmp
import shutil
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.generate_store import StoreShape, generate
from flintmq.offline import VerifyReport, find_store
from flintmq.offline import rebuild as rebuild_serially
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.spark.jobs.verify.parallel_verify import verify_stores
from tests.kits.spark.reading import SPLITS, split_size
from tests.kits.store.offline_stores import LEVELS, check

# Large bodies, since the serial tools need a moment for each message, not for each byte.
SHAPE = StoreShape(
    messages=265_000,
    body_size=4096,
    log_file_size=256 << 20,
    queue_file_size=60_000,
    slots=50_000,
    entries=150_000,
)

pytestmark = pytest.mark.slow
in_splits = pytest.mark.parametrize("splits", SPLITS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("large") / "store"
    generate(root, SHAPE)
    assert len(find_store(root).log_files) == 5
    assert SHAPE.messages * len(SHAPE.template) > 1 << 30
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def scanned(store: Path) -> pa.Table:
    """Give the rows of the serial scan, which has looked at every checksum, queue by queue."""
    layout = find_store(store)
    with Regions(layout.files) as regions:
        scan = LogScan(LogFiles(layout, regions), check_crc=True)
        with closing(scan.batches()) as batches:
            records = [record for batch in batches for record in batch]
        assert not scan.damages
        crcs = [stored_crc(regions, store, record.physical_offset) for record in records]
    table = pa.table(
        {
            "topic": [record.topic.decode() for record in records],
            "queueId": [record.queue_id for record in records],
            "queueOffset": [record.queue_offset for record in records],
            "physicalOffset": [record.physical_offset for record in records],
            "storeSize": [record.size for record in records],
            "storeMs": [record.store_timestamp for record in records],
            "bodyCRC": crcs,
        }
    )
    return by_queue(table)


def by_queue(table: pa.Table) -> pa.Table:
    names = ("topic", "queueId", "queueOffset")
    return table.sort_by([(name, "ascending") for name in names]).combine_chunks()


def stored_crc(regions: Regions, store: Path, physical_offset: int) -> int:
    """Return the checksum of a body that stands in its record."""
    position = physical_offset % SHAPE.log_file_size
    view = regions.view(store / "commitlog" / f"{physical_offset - position:020}")
    assert view is not None
    return int(struct.unpack_from(">i", view, position + 8)[0])


@pytest.fixture(scope="module")
def verified(store: Path) -> VerifyReport:
    return check(store)


@pytest.fixture(scope="module")
def rebuilt(store: Path) -> Iterator[Path]:
    output = store.with_name("serial")
    rebuild_serially(find_store(store), output, queues=True, index=True, delay_levels=LEVELS)
    yield output
    shutil.rmtree(output)


def part_count(splits: int) -> int:
    """Return how many parts the written bytes of five files are, the last of which ends early."""
    last = SHAPE.messages % SHAPE.per_file * len(SHAPE.template)
    return 4 * splits + -(-last * splits // SHAPE.log_file_size)


@in_splits
def test_a_query_gives_the_rows_of_the_serial_scan(
    spark: SparkSession, store: Path, scanned: pa.Table, splits: int
) -> None:
    reader = spark.read.format("flintmq").option("splitSize", split_size(store, splits))
    table = reader.schema(
        "topic string, queueId int, queueOffset long, physicalOffset long, storeSize int, "
        "storeTimestamp timestamp, body binary"
    ).load(str(store))
    found = table.selectExpr(
        "topic",
        "queueId",
        "queueOffset",
        "physicalOffset",
        "storeSize",
        "unix_millis(storeTimestamp) AS storeMs",
        # The body itself has gone through Spark.
        "CAST(crc32(body) & 2147483647 AS int) AS bodyCRC",
    )
    # Sorted here: for a sort of its own, Spark would scan twice.
    assert by_queue(found.toArrow().cast(scanned.schema)).equals(scanned)


@in_splits
def test_a_rebuild_gives_the_views_byte_for_byte(
    spark: SparkSession, store: Path, rebuilt: Path, tmp_path: Path, splits: int
) -> None:
    size = int(split_size(store, splits))
    report = rebuild(spark, store, out=tmp_path / "out", split_size=size)
    assert not list(report.findings)
    assert report.part_count == part_count(splits)
    # The generated views were not derived from the log; the serial ones by the engine's rules.
    for known in (rebuilt, store):
        for kind in ("consumequeue", "index"):
            assert_same_files(tmp_path / "out" / kind, known / kind)
    shutil.rmtree(tmp_path / "out")


def assert_same_files(made: Path, known: Path) -> None:
    mine, theirs = (
        sorted(path for path in directory.rglob("*") if path.is_file())
        for directory in (made, known)
    )
    assert len(theirs) > 1
    # An index file is named after the moment at which it was made.
    for one, other in zip(mine, theirs, strict=True):
        assert filecmp.cmp(one, other, shallow=False), other


@in_splits
def test_a_verification_reports_what_the_serial_one_does(
    spark: SparkSession, store: Path, verified: VerifyReport, splits: int
) -> None:
    (report,) = verify_stores(spark, [store], split_size=int(split_size(store, splits)))
    assert verified.is_sound
    assert verified.record_count == SHAPE.messages
    assert counted(report) == counted(verified)


def counted(report: VerifyReport) -> dict[str, object]:
    """Return all that both reports tell."""
    known = {name: getattr(report, name) for name in VerifyReport.__dataclass_fields__}
    return known | {"findings": list(report.findings)}
