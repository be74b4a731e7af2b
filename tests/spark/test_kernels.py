"""Kernels find what the code in Python finds, in whole logs and in damaged ones."""

import ctypes
import dataclasses
import mmap
import os
import subprocess
import sys
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.format.stored.record import CheckedRecord
from flintmq.format.stored.record_search import whole_record
from flintmq.kernels.cache_directory import UNUSED_SECONDS_MAX, cache_directory, remove_unused
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.crc import crc31
from flintmq.kernels.records import RecordTable, Stop, Walk, skip_records, walk_records
from flintmq.kernels.texts import Pieces, find_byte, gather, is_one_of, is_utf8
from flintmq.spark.stored.split_plan import walked_starts
from tests.kits.golden.golden_sets import golden_set
from tests.kits.store.log_bytes import LONG_MAX, RecordMaker, chain, ints, join, records

PATIENT = settings(deadline=None)
"""The first call of a kernel may compile it."""

bases = st.sampled_from([0, 1 << 30, LONG_MAX - (1 << 20)])


def walk(log: bytes, limit: int, base: int, *, rows_max: int = 1000) -> Walk:
    return walk_records(as_bytes(log), 0, limit, limit, base, rows_max=rows_max, bytes_max=1 << 40)


def checked(log: bytes, table: RecordTable, row: int) -> CheckedRecord:
    """Return a row of a table in the form of `check_record`."""
    topic_at, properties_at = int(table.topic_at[row]), int(table.properties_at[row])
    return CheckedRecord(
        int(table.size[row]),
        int(table.queue_id[row]),
        int(table.queue_offset[row]),
        int(table.physical_offset[row]),
        int(table.sys_flag[row]),
        int(table.store_timestamp[row]),
        log[topic_at : topic_at + int(table.topic_size[row])],
        log[properties_at : properties_at + int(table.properties_size[row])],
        int(table.prepared_transaction_offset[row]),
    )


def assert_same(log: bytes, limit: int, base: int) -> None:
    """Check that the kernel goes as far as Python does, and tells the same."""
    found = walk(log, limit, base)
    expected = list(chain(log, 0, limit, base))
    assert list(found.table.position) == [position for position, _ in expected]
    rows = [checked(log, found.table, row) for row in range(len(found.table))]
    assert rows == [record for _, record in expected]
    end = expected[-1][0] + expected[-1][1].size if expected else 0
    assert found.position == end
    assert found.stop is (Stop.AT_STOP if end == limit else Stop.SPECIAL)


@PATIENT
@given(makers=st.lists(records(), max_size=6), base=bases, cut=st.integers(0, 300))
def test_whole_and_cut_logs(makers: list[RecordMaker], base: int, cut: int) -> None:
    log = join(base, makers)
    assert_same(log, len(log), base)
    assert_same(log, max(len(log) - cut, 0), base)


@PATIENT
@given(
    makers=st.lists(records(), min_size=1, max_size=3),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=3),
)
def test_flipped_bytes(makers: list[RecordMaker], damage: list[tuple[int, int]]) -> None:
    log = bytearray(join(0, makers))
    for at, bits in damage:
        log[at % len(log)] ^= bits
    assert_same(bytes(log), len(log), 0)


SIZE_FIELDS = (0, 4, 36, 84)
"""Size, magic, sys flag, body length."""


@PATIENT
@given(
    makers=st.lists(records(), min_size=1, max_size=2),
    at=st.sampled_from(SIZE_FIELDS),
    value=st.one_of(ints, st.sampled_from([0, -1, 91, (1 << 31) - 1, -(1 << 31)])),
)
def test_sizes_that_lie(makers: list[RecordMaker], at: int, value: int) -> None:
    log = bytearray(join(0, makers))
    log[at : at + 4] = value.to_bytes(4, "big", signed=True)
    assert_same(bytes(log), len(log), 0)


def test_nothing_behind_the_limit_is_read() -> None:
    """Behind the bytes is a page that nobody may read: the process would end."""
    page = mmap.PAGESIZE
    guarded = mmap.mmap(-1, 3 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(guarded))
    library = ctypes.CDLL(None, use_errno=True)
    assert library.mprotect(ctypes.c_void_p(address + 2 * page), page, 0) == 0
    source = (golden_set("ipv6").store / "commitlog" / f"{0:020}").read_bytes()
    data = np.frombuffer(guarded, np.uint8, 2 * page)
    first = next(chain(source, 0, len(source), 0))[1].size
    for size in [*range(1, 200), first - 1, first]:
        for field, value in ((0, (1 << 31) - 1), (84, (1 << 31) - 1), (84, -1), (36, 0x30)):
            log = bytearray(source[:size])
            log[field : field + 4] = value.to_bytes(4, "big", signed=True)
            log = log[:size]
            data[len(data) - size :] = np.frombuffer(log, np.uint8)
            view = data[len(data) - size :]
            view.flags.writeable = False
            found = walk_records(view, 0, size, size, 0, rows_max=9, bytes_max=1 << 20)
            expected = list(chain(bytes(log), 0, size, 0))
            assert len(found.table) == len(expected)
    del data, view


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(1, 1 << 20), (7, 1 << 20), (1000, 1)])
def test_a_walk_goes_on_where_it_was_full(rows_max: int, bytes_max: int) -> None:
    log = (golden_set("rolled").store / "commitlog" / f"{0:020}").read_bytes()
    expected = [position for position, _ in chain(log, 0, len(log), 0)]
    found: list[int] = []
    position, stop = 0, Stop.FULL
    while stop is Stop.FULL:
        table, position, stop = walk_records(
            as_bytes(log), position, len(log), len(log), 0, rows_max=rows_max, bytes_max=bytes_max
        )
        assert 0 < len(table) <= rows_max or stop is not Stop.FULL
        found += table.position.tolist()
    assert found == expected
    assert skip_records(as_bytes(log), 0, len(log), len(log), 0) == position


def python_starts(log: bytes, start: int, stop: int, step: int) -> list[int]:
    starts: list[int] = []
    position, following = start, (start // step + 1) * step
    while position < stop:
        record = whole_record(memoryview(log), position, len(log), 0)
        if not isinstance(record, CheckedRecord):
            break
        if position >= following:
            starts.append(position)
            following = (position // step + 1) * step
        position += record.size
    return starts


@pytest.mark.parametrize("step", [1, 300, 1000, 10_000, 100_000])
def test_walked_starts(step: int) -> None:
    log = (golden_set("rolled").store / "commitlog" / f"{0:020}").read_bytes()
    damaged = bytearray(log)
    position = [position for position, _ in chain(log, 0, len(log), 0)][9]
    damaged[position + 4] ^= 1
    for one in (log, bytes(damaged)):
        for start, stop in ((0, len(one)), (0, position + 1), (0, position), (0, 0)):
            found = walked_starts(memoryview(one), start, stop, len(one), 0, step=step)
            assert found == python_starts(one, start, stop, step)


@PATIENT
@given(data=st.binary(max_size=300), start=st.integers(0, 40))
def test_checksums(data: bytes, start: int) -> None:
    start = min(start, len(data))
    expected = zlib.crc32(data[start:]) & 0x7FFFFFFF
    assert crc31(as_bytes(data), start, len(data) - start) == expected


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@PATIENT
@given(
    data=st.one_of(
        st.binary(max_size=20),
        st.text(max_size=20).map(str.encode),
        st.lists(st.sampled_from([0x20, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2])
                 | st.sampled_from([0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]), max_size=6)
        .map(bytes),
    )
)  # fmt: skip
def test_utf8(data: bytes) -> None:
    assert is_utf8(as_bytes(b"\xff" + data + b"\x80"), 1, len(data) + 1) == decodes(data)


@PATIENT
@given(data=st.binary(max_size=40), byte=st.integers(0, 255), start=st.integers(0, 40))
def test_finding_a_byte(data: bytes, byte: int, start: int) -> None:
    found = data.find(byte, start)
    expected = found if found >= 0 else max(len(data), start)
    assert find_byte(as_bytes(data), start, len(data), byte) == expected


@PATIENT
@given(values=st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=8))
def test_gathering(values: list[bytes | None]) -> None:
    log = b"".join(value or b"" for value in values)
    sizes = np.array([-1 if value is None else len(value) for value in values], np.int32)
    at = np.cumsum(np.maximum(sizes, 0), dtype=np.int64) - np.maximum(sizes, 0)
    pieces = Pieces(at, sizes)
    # The same values, some of which are not in the log.
    rows = np.arange(0, len(values), 2)
    moved = pieces.replaced(rows, values[::2])
    for one in (pieces, moved):
        offsets, data, valid = gather(as_bytes(log), one)
        assert [data[start:end].tobytes() for start, end in pairwise(offsets)] == [
            value or b"" for value in values
        ]
        is_there = [value is not None for value in values]
        assert (is_there if valid is None else valid.tolist()) == is_there


@PATIENT
@given(
    values=st.lists(st.sampled_from([b"", b"a", b"orders", b"order-events", b"order-events2"])),
    wanted=st.frozensets(st.sampled_from([b"", b"a", b"order", b"orders", b"order-events"])),
)
def test_one_of(values: list[bytes], wanted: frozenset[bytes]) -> None:
    sizes = np.array([len(value) for value in values], np.int32)
    at = np.cumsum(sizes, dtype=np.int64) - sizes
    found = is_one_of(as_bytes(b"".join(values)), at, sizes, wanted)
    assert found.tolist() == [value in wanted for value in values]


def test_a_table_of_some_rows() -> None:
    log = (golden_set("basic").store / "commitlog" / f"{0:020}").read_bytes()
    table = walk(log, len(log), 0).table
    some = table.take(slice(2, 5))
    assert len(some) == 3
    for field in dataclasses.fields(RecordTable):
        assert list(getattr(some, field.name)) == list(getattr(table, field.name))[2:5]


RUN = """
import resource, sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
from flintmq.kernels import compiled, crc
assert crc.__file__.startswith(sys.argv[1]), crc.__file__
assert crc.crc31(compiled.as_bytes(b"123456789"), 0, 9) == 0x4BF43926
print(sum(crc.crc31.stats.cache_hits.values()))
"""


def run_kernel(source: Path, cache: Path, *arguments: str) -> int:
    """Call a kernel in a new process; return how often it came from the cache."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, str(source), *arguments],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


def test_kernels_from_a_zip_file_are_compiled_once(tmp_path: Path) -> None:
    """Each job ships the package under another name; what is compiled serves them all."""
    package = Path(flintmq.__file__).parent
    hits = []
    for name in ("first.zip", "second.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for source in package.rglob("*.py"):
                archive.write(source, source.relative_to(package.parent))
        hits.append(run_kernel(tmp_path / name, tmp_path / "cache"))
    assert hits == [0, 1]


def test_processes_that_start_together_compile_a_kernel_once(tmp_path: Path) -> None:
    source = Path(flintmq.__file__).parent.parent
    with ThreadPoolExecutor(3) as pool:
        hits = pool.map(lambda _: run_kernel(source, tmp_path), range(3))
    assert sorted(hits) == [0, 1, 1]


def test_a_cache_that_cannot_be_written_or_read_costs_a_compilation(tmp_path: Path) -> None:
    source, cache = Path(flintmq.__file__).parent.parent, tmp_path / "cache"
    # As on a full disk: files can be made, and have no room.
    assert run_kernel(source, cache, "0") == 0
    assert run_kernel(source, cache) == 0
    assert run_kernel(source, cache) == 1
    for path in cache.rglob("*.nb?"):
        # A crash of the machine may leave such files.
        path.write_bytes(b"")
    assert run_kernel(source, cache) == 0


def test_a_directory_that_others_may_write_to_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept there is run."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    directory = cache_directory.__wrapped__()
    assert directory is not None
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o777)
    assert cache_directory.__wrapped__() != directory


def test_kernels_that_nobody_has_used_for_long_are_removed(tmp_path: Path) -> None:
    now = 2_000_000_000.0
    ages = {"old": UNUSED_SECONDS_MAX + 1, "young": UNUSED_SECONDS_MAX - 1, "foreign": 1e9}
    for name, age in ages.items():
        directory = tmp_path / f"flintmq-kernels-{name}"
        directory.mkdir(mode=0o770 if name == "foreign" else 0o700)
        # What a mask of the process leaves out is set by hand.
        directory.chmod(0o770 if name == "foreign" else 0o700)
        (directory / "kernel.nbi").write_bytes(b"machine code")
        os.utime(directory, (now - age, now - age))
    (tmp_path / "others").mkdir()
    os.utime(tmp_path / "others", (0, 0))
    (tmp_path / "flintmq-kernels-link").symlink_to(tmp_path / "others")
    remove_unused(tmp_path, now)
    left = {path.name.removeprefix("flintmq-kernels-") for path in tmp_path.iterdir()}
    assert left == {"young", "foreign", "others", "link"}
