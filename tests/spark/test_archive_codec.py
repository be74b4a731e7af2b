"""Records from columns, places in a restored log: without Spark, over many inputs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.host import pack_host
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.stored.record_layout import BLANK_SIZE
from flintmq.kernels.compiled import as_bytes
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_columns import (
    ARCHIVE,
    RAW_PROPERTIES,
    RAW_RECORD,
    RECORD_HASH,
    STORED_BODY,
    ExactRows,
    with_topic,
)
from flintmq.spark.jobs.archive.archive_manifest import ArchivedFile
from flintmq.spark.jobs.archive.archive_writer import PartitionedWriter, partition_path
from flintmq.spark.jobs.archive.record_codec import (
    encode_records,
    hash_pieces,
    joined_properties,
    move_records,
)
from flintmq.spark.jobs.archive.restore_plan import Chunk, ChunkGrid, plan_log
from flintmq.spark.options.store_options import OnCorrupt, ReadOptions
from flintmq.spark.rows.columns import MESSAGE
from flintmq.spark.rows.row_filter import RowFilter
from flintmq.spark.stored.split_batches import BatchReader
from flintmq.spark.stored.split_plan import StoreSplits
from tests.kits.golden.golden_sets import STORE_SET_NAMES, golden_set

V4 = pack_host("10.0.0.1", 10911)
V6 = pack_host("2001:db8::1", 65535)
MAPPED = pack_host("::ffff:10.0.0.1", 1)

records = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([b"t", "主题".encode(), b"%RETRY%g", b"", b"x" * 127]),
        "queue_id": st.integers(-1, 9),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "queue_offset": st.integers(0, 2**63 - 1),
        "sys_flag": st.sampled_from([0, 2, 4, 8, 12]),
        "born_timestamp": st.sampled_from([0, -1, 1_700_000_000_456, 2**63 - 1]),
        "born_host": st.sampled_from([V4, V6, MAPPED, V4[:4] + b"\xff\xff\xff\xff"]),
        "store_timestamp": st.sampled_from([1_700_000_000_456, -(2**63), 253_402_300_799_999]),
        "store_host": st.sampled_from([V4, V6]),
        "reconsume_times": st.integers(-1, 16),
        "prepared_transaction_offset": st.integers(-(2**63), 2**63 - 1),
        "body": st.binary(max_size=40),
        "properties": st.one_of(
            st.just(b"TAGS\x01a\x02KEYS\x01k"),
            st.just(b"a\x01b\x02"),
            st.just(b"a\x01b\x02a\x01c"),
            st.just("键\x01值\x02".encode()),
            st.binary(max_size=20),
        ),
    }
)


def write_log(path: Path, fields: list[dict[str, object]]) -> bytes:
    """Write one log file of records; return them joined."""
    data = b""
    for one in fields:
        flag = one["sys_flag"]
        assert isinstance(flag, int)
        flag |= 0x10 if len(one["born_host"]) == 20 else 0  # type: ignore[arg-type]
        flag |= 0x20 if len(one["store_host"]) == 20 else 0  # type: ignore[arg-type]
        record = {**one, "sys_flag": flag, "physical_offset": len(data)}
        data += encode_record(**record)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.ljust(1 << 16, b"\0"))
    return data


def complete_rows(store: Path) -> list[pa.RecordBatch]:
    """Return the rows of a store as they are archived."""
    options = ReadOptions(paths=(str(store),), broker_names={})
    plan = StoreSplits(store, options)
    end = plan.layout.log_files[-1].first_offset + plan.layout.log_file_size
    found = []
    for split in plan.between(plan.layout.log_files[0].first_offset, end):
        data = as_bytes(Path(split.path).read_bytes())
        reader = BatchReader(split, MESSAGE.arrow(), RowFilter(), OnCorrupt.SKIP)
        for batch in reader.batches():
            positions = batch.column("physicalOffset").to_numpy() - split.file_start
            found.append(ExactRows("s").complete(batch, data, positions))
    return found


def encoded(rows: pa.RecordBatch) -> bytes:
    # Only what an archive holds may be used.
    kept = {name: rows.column(name) for name in ARCHIVE.kinds}
    return encode_records(kept).data.tobytes()


@settings(deadline=None, max_examples=60)  # The first call compiles the kernels.
@given(fields=st.lists(records, min_size=1, max_size=8))
def test_any_record_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, fields: list[dict[str, object]]
) -> None:
    store = tmp_path_factory.mktemp("log")
    data = write_log(store / "commitlog" / f"{0:020}", fields)
    assert b"".join(map(encoded, complete_rows(store))) == data


@pytest.mark.parametrize("name", STORE_SET_NAMES)
def test_golden_records_come_out_as_they_went_in(name: str) -> None:
    golden = golden_set(name)
    files = dict(golden.log_files())
    size = len(next(iter(files.values())))
    for rows in complete_rows(golden.store):
        start = rows.column("physicalOffset")[0].as_py()
        sizes = sum(rows.column("storeSize").to_pylist())
        at = start % size
        assert encoded(rows) == files[start - at][at : at + sizes]
        # Little is kept twice: bodies only where they were compressed, whole records never.
        assert rows.column(RAW_RECORD).null_count == rows.num_rows
        flags = rows.column("sysFlag").to_numpy() & 1
        kept = rows.num_rows - rows.column(STORED_BODY).null_count
        assert kept == flags.sum()


def test_odd_parts_are_kept_as_they_are(tmp_path: Path) -> None:
    plain = {
        "topic": b"t",
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "born_host": V4,
        "store_timestamp": 2,
        "store_host": V4,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"b",
        "properties": b"a\x01b",
    }
    cases = [
        plain,
        {**plain, "properties": b"a\x01b\x02"},
        {**plain, "born_timestamp": 2**63 - 1},
        {**plain, "born_host": MAPPED},
        {**plain, "topic": b""},
    ]
    write_log(tmp_path / "commitlog" / f"{0:020}", cases)
    (rows,) = complete_rows(tmp_path)
    kept = [
        (row[RAW_PROPERTIES] is not None, row[RAW_RECORD] is not None) for row in rows.to_pylist()
    ]
    assert kept == [(False, False), (True, False), (False, True), (False, True), (False, True)]


def test_a_part_of_a_table_costs_what_the_part_has() -> None:
    """A restore takes a chunk in batches: each of them looked at the properties of all."""
    pairs = [("UNIQ_KEY", "x" * 32), ("KEYS", "k"), ("TAGS", "t")]
    whole = pa.array([pairs] * 50_000, pa.map_(pa.string(), pa.string()))
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        part = joined_properties(whole.slice(20_000, 10))
        sizes, first = part.sizes.tolist(), part.data[part.at[0] : part.at[1]].tobytes()
        # What a pool has given must be given back before the pool goes.
        del part
    finally:
        pa.set_memory_pool(before)
    text = b"\x02".join(f"{name}\x01{value}".encode() for name, value in pairs)
    assert sizes == [len(text)] * 10
    assert first == text
    assert pool.max_memory() < 100_000


def test_hashes_tell_records_apart_and_moving_changes_only_the_place() -> None:
    (rows, *_) = complete_rows(golden_set("basic").store)
    columns = {name: rows.column(name) for name in ARCHIVE.kinds}
    found = encode_records(columns)
    hashes = hash_pieces(found.data, found.at[:-1], found.sizes)
    assert hashes.tolist() == rows.column(RECORD_HASH).to_pylist()
    assert len(set(hashes.tolist())) == rows.num_rows
    # The known answers of FNV-1a.
    text = as_bytes(b"afoobar")
    known = hash_pieces(text, np.array([0, 0, 1]), np.array([0, 1, 6]))
    assert [value % (1 << 64) for value in known.tolist()] == [
        0xCBF29CE484222325,
        0xAF63DC4C8601EC8C,
        0x85944171F73967E8,
    ]
    before = found.data.copy()
    move_records(found, found.at[:-1] + 1000)
    changed = np.flatnonzero(before != found.data)
    starts = found.at[:-1][np.searchsorted(found.at, changed, side="right") - 1]
    assert ((changed - starts >= 28) & (changed - starts < 36)).all()


# -- files by topic and day ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "topic=orders"),
        ("%RETRY%g", "topic=%25RETRY%25g"),
        ("a/b=c", "topic=a%2Fb%3Dc"),
        ("主题", "topic=主题"),
        ("", "topic=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_partitions_are_named_as_spark_does(topic: str, name: str) -> None:
    assert partition_path((topic, "2024-01-02")) == f"{name}/day=2024-01-02"


def test_a_topic_may_be_too_long_for_a_directory() -> None:
    with pytest.raises(ArchiveError, match="no directory can have the name"):
        partition_path(("%" * 127, "2024-01-02"))


def test_few_rows_wait_and_a_topic_has_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.spark.jobs.archive.archive_writer.BUFFER_BYTES_MAX", 10_000)
    writer = PartitionedWriter(tmp_path, "s", 3)
    batches = complete_rows(golden_set("rolled").store)
    for batch in batches:
        writer.add(batch)
        assert writer._waiting_bytes <= 10_000
    files: list[ArchivedFile] = writer.finish()
    assert sum(file.rows for file in files) == 385
    assert sorted(str(file.topic) for file in files) == ["golden-orders", "golden_audit"]
    hashes = [value for batch in batches for value in batch.column(RECORD_HASH).to_pylist()]
    assert sum(file.checksum for file in files) % (1 << 64) == sum(hashes) % (1 << 64)


def test_small_topics_share_a_file_and_large_ones_have_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("BUFFER_BYTES_MAX", 300_000),
        ("_OWN_BYTES_MIN", 20_000),
        ("OWN_FILES_MAX", 3),
        ("_OWN_COUNT_MIN", 1),
    ):
        monkeypatch.setattr(f"flintmq.spark.jobs.archive.archive_writer.{name}", value)
    (batch,) = complete_rows(golden_set("basic").store)
    writer, wanted = PartitionedWriter(tmp_path, "s", 0), []
    at = batch.schema.get_field_index("topic")
    for number in range(60):
        topic = "large" if number % 2 else f"small-{number:03}"
        rows = batch.slice(0, 40 if number % 2 else 3)
        wanted += [(topic, offset) for offset in rows.column("physicalOffset").to_pylist()]
        writer.add(rows.set_column(at, "topic", pa.repeat(topic, rows.num_rows)))
    files = writer.finish()
    assert sorted((file.topic or "", file.rows) for file in files) == [("", 90), ("large", 1200)]
    found: list[tuple[str, int]] = []
    for file in files:
        rows = with_topic(pq.ParquetFile(tmp_path / file.path).read(), file.topic)
        found += zip(*(rows[name].to_pylist() for name in ("topic", "physicalOffset")), strict=True)
        if file.topic is None:
            assert file.path.startswith("topic=several/day=several/")
    assert sorted(found) == sorted(wanted)
    # However many topics are large, the number of files is bounded.
    writer = PartitionedWriter(tmp_path / "many", "s", 0)
    for number in range(100):
        writer.add(batch.set_column(at, "topic", pa.repeat(f"t{number}", batch.num_rows)))
    files = writer.finish()
    assert len(files) <= 4
    assert sum(file.rows for file in files) == 100 * batch.num_rows


def test_a_topic_that_is_rare_does_not_keep_the_rows_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_max = 200_000
    monkeypatch.setattr("flintmq.spark.jobs.archive.archive_writer.BUFFER_BYTES_MAX", size_max)
    (batch,) = complete_rows(golden_set("basic").store)
    first, *_ = topics = batch.column("topic").to_pylist()
    others = [row for row, topic in enumerate(topics) if topic != first]
    assert others
    writer, before = PartitionedWriter(tmp_path, "s", 0), pa.total_allocated_bytes()
    for _ in range(1 + 10 * size_max // batch.nbytes):
        writer.add(batch.take([0, *others]))
        assert pa.total_allocated_bytes() - before < 4 * size_max
    writer.finish()


# -- places in a restored log ----------------------------------------------------------------

FILE_SIZE = 1000


@st.composite
def old_logs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    """Draw the records (offset, size) of a log whose files end with blanks, and where it ends."""
    found, at = [], draw(st.integers(0, 3)) * FILE_SIZE
    for size in draw(st.lists(st.integers(40, 400), min_size=1, max_size=30)):
        if at % FILE_SIZE + size + BLANK_SIZE > FILE_SIZE:
            at += FILE_SIZE - at % FILE_SIZE
        found.append((at, size))
        at += size
    return found, at


def chunks_of(grid: ChunkGrid, kept: list[tuple[int, int]]) -> list[Chunk]:
    found: dict[int, Chunk] = {}
    for start, size in kept:
        number = int(grid.of(np.array([start]))[0])
        one = Chunk(number, 1, size, start, start + size)
        found[number] = found[number].joined(one) if number in found else one
    return list(found.values())


@given(log=old_logs(), chunk_size=st.integers(100, FILE_SIZE))
def test_a_whole_log_keeps_its_places(
    log: tuple[list[tuple[int, int]], int], chunk_size: int
) -> None:
    kept, end = log
    grid = ChunkGrid(file_size=FILE_SIZE, chunk_size=chunk_size)
    plan = plan_log(grid, chunks_of(grid, kept), end)
    assert plan.is_exact
    assert plan.starts == {chunk.number: chunk.start for chunk in chunks_of(grid, kept)}
    ends = {start + size for start, size in kept}
    assert all(blank.start in ends and blank.size >= BLANK_SIZE for blank in plan.blanks)
    assert len(plan.blanks) == len(plan.file_starts) - 1
    # One record less, or one that is elsewhere, and it is not whole.
    if len(kept) > 1:
        assert not plan_log(grid, chunks_of(grid, kept[1:]), end).is_exact
        assert not plan_log(grid, chunks_of(grid, kept[:-1]), end).is_exact


@given(log=old_logs(), chunk_size=st.integers(100, FILE_SIZE), data=st.data())
def test_a_compacted_log_has_no_holes_and_fits(
    log: tuple[list[tuple[int, int]], int], chunk_size: int, data: st.DataObject
) -> None:
    kept = [one for one in log[0] if data.draw(st.booleans())]
    grid = ChunkGrid(file_size=FILE_SIZE, chunk_size=chunk_size)
    chunks = sorted(chunks_of(grid, kept), key=lambda chunk: chunk.number)
    plan = plan_log(grid, chunks, None)
    assert not plan.is_exact
    blanks = {blank.start: blank.size for blank in plan.blanks}
    at = FILE_SIZE  # Blank units lead to 0, where no record may be.
    for chunk in chunks:
        if at in blanks and plan.starts[chunk.number] != at:
            assert blanks[at] >= BLANK_SIZE
            at += blanks.pop(at)
            assert at % FILE_SIZE == 0
        assert plan.starts[chunk.number] == at
        at += chunk.size
        assert at % FILE_SIZE <= FILE_SIZE - BLANK_SIZE
    assert (plan.end, blanks) == (at if chunks else 0, {})
    assert len(plan.file_starts) == -(-at // FILE_SIZE) - 1
