"""What every ``Files`` promises, proven of the real one and of the simulated one alike."""

import errno
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from flintmq.model.message import PutMessage
from flintmq.store.errors import (
    DiskFullError,
    StoreError,
    StoreIOError,
    StoreLoadError,
    StoreLockedError,
)
from flintmq.store.files import file_map, local_files, local_region
from flintmq.store.files.file_map import UNTRACKED_FROM, FileMap, UntrackedMap, map_file
from flintmq.store.files.file_system_sync import sync_file_system
from flintmq.store.files.interface import (
    DiskUsage,
    Files,
    make_directory_durable,
    safe_child,
    staging_directory,
)
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.page_preparation import PIECE_SIZE
from flintmq.store.message_store import MessageStore
from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.offline_stores import HOST, small_config

SIZE = 3 * 4096 + 100


class Place(NamedTuple):
    files: Files
    root: Path


@pytest.fixture(params=["local", "untracked", "simulated"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param == "untracked":
        # As in a process that has many descriptors open.
        monkeypatch.setattr(local_region, "map_file", UntrackedMap)
    if request.param == "simulated":
        yield Place(SimulatedFiles(), ROOT)
    else:
        yield Place(LocalFiles(), tmp_path)


def test_a_new_file_is_zeros_of_the_wanted_size(place: Place) -> None:
    path = place.root / "a" / "b" / "file"
    region = place.files.create(path, SIZE)
    assert (region.path, region.size, region.read_only) == (path, SIZE, False)
    assert region.view == bytes(SIZE)
    region.close()
    assert place.files.size(path) == SIZE
    assert place.files.read(path) == bytes(SIZE)


def test_a_file_made_without_reserving_has_its_size_too(place: Place) -> None:
    region = place.files.create(place.root / "file", SIZE, reserve=False)
    region.reserve(4000, 5000)
    region.view[4000:5000] = b"x" * 1000
    region.sync()
    region.close()
    assert place.files.read(place.root / "file") == bytes(4000) + b"x" * 1000 + bytes(SIZE - 5000)


def test_an_existing_file_is_not_created_again(place: Place) -> None:
    place.files.write(place.root / "file", b"precious")
    for create in (place.files.create, place.files.create_durable):
        with pytest.raises(StoreIOError) as caught:
            create(place.root / "file", SIZE)
        assert isinstance(caught.value.cause, FileExistsError)
    assert place.files.read(place.root / "file") == b"precious"


def test_what_one_region_writes_another_sees(place: Place) -> None:
    writer = place.files.create(place.root / "file", SIZE)
    reader = place.files.open(place.root / "file", read_only=True)
    writer.view[10:15] = b"hello"
    writer.write(4096, b"world")
    assert bytes(reader.view[10:15]) == b"hello"
    assert bytes(writer.view[4096:4101]) == b"world"
    assert bytes(reader.view[4096:4101]) == b"world"
    reader.close()
    writer.close()


def test_a_region_opened_for_reading_cannot_be_changed(place: Place) -> None:
    place.files.write(place.root / "file", b"abc")
    region = place.files.open(place.root / "file", read_only=True)
    assert region.read_only
    with pytest.raises(TypeError):
        region.view[0] = 1
    region.sync()
    changes: list[Callable[[], object]] = [
        lambda: region.write(0, b"x"),
        lambda: region.reserve(0, 3),
    ]
    for change in changes:
        with pytest.raises(StoreError, match="reading only"):
            change()
    region.close()


def test_an_opened_file_can_be_written_and_synced(place: Place) -> None:
    place.files.write(place.root / "file", b"abc")
    region = place.files.open(place.root / "file")
    region.view[0:1] = b"A"
    region.write(2, memoryview(b"xCx")[1:2])
    region.sync()
    region.close()
    assert place.files.read(place.root / "file") == b"AbC"


def test_an_empty_file_cannot_be_mapped(place: Place) -> None:
    place.files.write(place.root / "file", b"")
    with pytest.raises(StoreLoadError, match="empty"):
        place.files.open(place.root / "file")


def test_a_missing_file_cannot_be_mapped(place: Place) -> None:
    with pytest.raises(StoreIOError) as caught:
        place.files.open(place.root / "file")
    assert isinstance(caught.value.cause, FileNotFoundError)


def test_closing_a_region_that_is_still_read_is_an_error(place: Place) -> None:
    region = place.files.create(place.root / "file", SIZE)
    region.view[0:5] = b"stays"
    kept = region.view[0:5]
    with pytest.raises(StoreError, match="still read"):
        region.close()
    assert bytes(kept) == b"stays"
    region.close()


def test_a_closed_region_refuses_to_work(place: Place) -> None:
    place.files.write(place.root / "file", b"abc")
    region = place.files.open(place.root / "file")
    region.close()
    region.close()
    uses: list[Callable[[], object]] = [lambda: region.write(0, b"x"), region.sync]
    for use in uses:
        with pytest.raises(StoreError, match="closed"):
            use()


def test_data_ranges_cover_every_byte_that_is_not_zero(place: Place) -> None:
    size = 1 << 20
    region = place.files.create(place.root / "file", size)
    for position in (0, 300_000, size - 1):
        region.view[position] = 1
    for start in (0, 1, 300_000, 300_001, size - 1, size):
        covered = [
            position
            for begin, end in region.data_ranges(start)
            for position in range(begin, end)
            if region.view[position]
        ]
        assert covered == [position for position in (0, 300_000, size - 1) if position >= start]
        assert all(start <= begin < end <= size for begin, end in region.data_ranges(start))
    region.close()


def test_a_warm_file_is_still_zeros(place: Place) -> None:
    region = place.files.create(place.root / "file", SIZE)
    region.warm()
    region.sync()
    region.advise_will_need(5000, 1 << 30)
    assert region.view == bytes(SIZE)
    region.close()


def test_a_durable_file_leaves_no_other_name(place: Place) -> None:
    path = place.root / "commitlog" / "file"
    region = place.files.create_durable(path, SIZE)
    assert region.path == path
    region.view[0:1] = b"x"
    region.sync()
    region.close()
    assert [entry.name for entry in place.files.list(path.parent)] == ["file"]
    assert place.files.list(staging_directory(path.parent)) == []
    assert place.files.read(path, limit=2) == b"x\0"


def test_a_durable_file_replaces_what_a_crash_left_half_made(place: Place) -> None:
    path = place.root / "commitlog" / "file"
    half_made = staging_directory(path.parent) / "file"
    place.files.make_directory(half_made.parent)
    place.files.write(half_made, b"half")
    place.files.create_durable(path, SIZE).close()
    assert place.files.read(path) == bytes(SIZE)
    assert not place.files.exists(half_made)


def test_written_content_replaces_the_old_one(place: Place) -> None:
    path = place.root / "file"
    place.files.write(path, b"a long old content")
    place.files.write(path, b"new")
    place.files.sync(path)
    assert place.files.read(path) == b"new"
    assert place.files.read(path, limit=2) == b"ne"
    assert place.files.size(path) == 3


def test_missing_things_are_told_apart_from_failures(place: Place) -> None:
    path = place.root / "missing"
    with pytest.raises(FileNotFoundError):
        place.files.read(path)
    with pytest.raises(FileNotFoundError):
        place.files.remove(path)
    place.files.remove(path, missing_ok=True)
    assert not place.files.exists(path)
    assert place.files.size(path) is None
    assert place.files.modified_ms(path) is None
    assert place.files.usage(path) is None
    assert place.files.list(path) == []
    assert not place.files.remove_directory(path)
    calls: list[Callable[[], object]] = [
        lambda: place.files.sync(path),
        lambda: place.files.sync_directory(path),
        lambda: place.files.sync_below(path),
        lambda: place.files.rename(path, place.root / "other"),
        lambda: place.files.write(path / "below", b""),
    ]
    for call in calls:
        with pytest.raises(StoreIOError) as caught:
            call()
        assert isinstance(caught.value.cause, FileNotFoundError)


def test_a_file_is_no_directory_and_a_directory_no_file(place: Place) -> None:
    place.files.write(place.root / "file", b"abc")
    place.files.make_directory(place.root / "directory")
    calls: list[Callable[[], object]] = [
        lambda: place.files.list(place.root / "file"),
        lambda: place.files.sync_directory(place.root / "file"),
        lambda: place.files.sync_below(place.root / "file"),
        lambda: place.files.make_directory(place.root / "file" / "below"),
        lambda: place.files.create(place.root / "file" / "below", SIZE),
        lambda: place.files.read(place.root / "directory"),
        lambda: place.files.remove(place.root / "directory"),
        lambda: place.files.open(place.root / "directory"),
    ]
    for call in calls:
        with pytest.raises(StoreIOError):
            call()
    assert not place.files.exists(place.root / "file" / "below")
    assert place.files.size(place.root / "file" / "below") is None


def test_a_rename_takes_the_place_of_the_target(place: Place) -> None:
    place.files.write(place.root / "a", b"new")
    place.files.write(place.root / "b", b"old")
    place.files.rename(place.root / "a", place.root / "b")
    assert place.files.read(place.root / "b") == b"new"
    assert not place.files.exists(place.root / "a")


def test_entries_are_listed_by_name(place: Place) -> None:
    for name in ("b", "a", "c"):
        place.files.write(place.root / name, name.encode() * 3)
    place.files.make_directory(place.root / "d" / "e")
    entries = place.files.list(place.root)
    assert [(entry.name, entry.is_directory) for entry in entries] == [
        ("a", False),
        ("b", False),
        ("c", False),
        ("d", True),
    ]
    assert {entry.size for entry in entries[:3]} == {3}
    assert entries[0].modified_ms == place.files.modified_ms(place.root / "a")


def test_only_an_empty_directory_is_removed(place: Place) -> None:
    path = place.root / "directory"
    place.files.make_directory(path)
    place.files.write(path / "file", b"")
    assert not place.files.remove_directory(path)
    place.files.remove(path / "file")
    assert place.files.remove_directory(path)
    assert not place.files.exists(path)


def test_a_removed_file_stays_mapped(place: Place) -> None:
    region = place.files.create(place.root / "file", SIZE)
    region.view[0:4] = b"here"
    place.files.remove(place.root / "file")
    assert bytes(region.view[0:4]) == b"here"
    region.sync()
    region.close()


def test_a_store_is_locked_once(place: Place) -> None:
    path = place.root / "store" / "lock"
    lock = place.files.lock(path)
    assert place.files.size(path) == 4
    with pytest.raises(StoreLockedError, match="another broker") as caught:
        place.files.lock(path)
    assert caught.value.path == path
    lock.release()
    lock.release()
    second = place.files.lock(path)
    lock.release()
    with pytest.raises(StoreLockedError):
        place.files.lock(path)
    second.release()
    assert place.files.read(path) == b"lock"


def test_usage_is_known_of_an_existing_path(place: Place) -> None:
    usage = place.files.usage(place.root)
    assert usage is not None
    assert 0 <= usage.available <= usage.free <= usage.total
    assert 0 <= usage.used_ratio <= 1


def test_directories_are_made_durably_as_far_as_they_are_missing(place: Place) -> None:
    path = place.root / "a" / "b" / "c"
    make_directory_durable(place.files, path)
    make_directory_durable(place.files, path)
    assert place.files.exists(path)


@pytest.mark.parametrize(
    ("usage", "ratio"),
    [
        (DiskUsage(100, 25, 25), 0.75),
        (DiskUsage(1000, 249, 249), 0.76),
        (DiskUsage(100, 30, 20), 0.78),  # 70 used of the 90 that an ordinary user can have.
        (DiskUsage(100, 100, 100), 0.0),
        (DiskUsage(100, 0, 0), 1.0),
        (DiskUsage(0, 0, 0), -1.0),
    ],
)
def test_the_used_ratio_is_rounded_up_to_a_hundredth(usage: DiskUsage, ratio: float) -> None:
    assert usage.used_ratio == ratio


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b", "x" * 256, "é" * 128])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match="not a file name"):
        safe_child(Path("/root"), name)


@pytest.mark.parametrize("name", ["topic", "%RETRY%group", "...", "x" * 255, "a b"])
def test_an_ordinary_name_is_a_child(name: str) -> None:
    assert safe_child(Path("/root"), name) == Path("/root") / name


# -- the real file system alone --------------------------------------------------------------


def open_descriptors(path: Path) -> int:
    links = list(Path("/proc/self/fd").iterdir())
    return sum(link.is_symlink() and link.readlink() == path for link in links)


def test_a_file_that_is_only_read_needs_one_descriptor_at_most(tmp_path: Path) -> None:
    files = LocalFiles()
    created = files.create(tmp_path / "file", SIZE)
    created.close()
    assert open_descriptors(tmp_path / "file") == 0
    region = files.open(tmp_path / "file")
    of_the_map = 0 if sys.version_info >= (3, 13) else 1
    assert open_descriptors(tmp_path / "file") == of_the_map
    region.sync()
    assert open_descriptors(tmp_path / "file") == of_the_map + 1
    region.close()
    assert open_descriptors(tmp_path / "file") == 0


def test_maps_of_many_files_need_few_descriptors(tmp_path: Path) -> None:
    """Ten thousand queues had ten thousand descriptors besides their own."""
    files = LocalFiles(descriptors_max=8)
    regions = [files.create(tmp_path / str(number), SIZE) for number in range(UNTRACKED_FROM + 200)]
    links = list(Path("/proc/self/fd").iterdir())
    kept = sum(link.is_symlink() and link.readlink().parent == tmp_path for link in links)
    assert kept <= UNTRACKED_FROM + 8
    for number, region in enumerate(regions):
        region.view[:4] = number.to_bytes(4)
        region.sync()
    for number, region in enumerate(regions):
        region.close()
        assert files.read(tmp_path / str(number))[:4] == number.to_bytes(4)


def test_a_file_can_be_mapped_when_its_descriptor_is_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dup(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    LocalFiles().write(tmp_path / "file", b"content")
    monkeypatch.setattr(os, "dup", dup)
    with (tmp_path / "file").open("rb") as file:
        assert bytes(map_file(file.fileno(), 7, read_only=True).view) == b"content"


def test_a_file_that_cannot_be_mapped_is_an_error(tmp_path: Path) -> None:
    LocalFiles().write(tmp_path / "file", b"content")
    with (tmp_path / "file").open("rb") as file:
        assert bytes(UntrackedMap(file.fileno(), 7, read_only=True).view) == b"content"
        with pytest.raises(PermissionError):
            UntrackedMap(file.fileno(), 7, read_only=False)


def test_files_leave_some_maps_to_memory_and_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = file_map._MapRoom(2)
    monkeypatch.setattr(file_map, "_room", lambda: room)
    files = LocalFiles()
    first, _ = files.create(tmp_path / "1", 4096), files.create(tmp_path / "2", 4096)
    with pytest.raises(StoreIOError, match=r"2 files are mapped, as many as vm\.max_map_count"):
        files.create(tmp_path / "3", 4096)
    first.close()
    files.create(tmp_path / "4", 4096).close()
    # A file that could not be mapped takes no room either.
    with pytest.raises(StoreError):
        files.open(tmp_path / "none")
    files.create(tmp_path / "5", 4096).close()


def test_how_many_files_may_be_mapped_is_what_the_kernel_allows(tmp_path: Path) -> None:
    limit = tmp_path / "limit"
    assert file_map.file_count_max(limit) == sys.maxsize
    for text, most in [("65530\n", 63_482), ("3000\n", 1500), ("unlimited\n", sys.maxsize)]:
        limit.write_text(text)
        assert file_map.file_count_max(limit) == most


def test_an_untracked_map_lives_as_long_as_its_last_reader(tmp_path: Path) -> None:
    LocalFiles().write(tmp_path / "file", b"content" * 1000)

    def is_mapped() -> bool:
        return str(tmp_path / "file") in Path("/proc/self/maps").read_text()

    with (tmp_path / "file").open("rb") as file:
        mapped = UntrackedMap(file.fileno(), 7000, read_only=True)
    reader = mapped.view[7:14]
    with pytest.raises(BufferError):
        mapped.close()
    assert is_mapped()
    assert bytes(reader) == b"content"
    del reader
    assert not is_mapped()


def facts_of_maps(path: Path, fact: str) -> list[str]:
    """Return what the kernel says of each map of a file, from its start to its end."""
    maps = Path("/proc/self/smaps").read_text()
    found = maps.split(f"{path}\n")[1:]
    assert found
    lines = [next(line for line in of_one.splitlines() if fact in line) for of_one in found]
    return [line.partition(":")[2].strip() for line in lines]


def is_read_ahead(path: Path) -> bool:
    """Whether the kernel reads more of a mapped file than the page that is touched."""
    (flags,) = facts_of_maps(path, "VmFlags")
    return "rr" not in flags.split()


@pytest.mark.parametrize("map_of", [map_file, UntrackedMap])
def test_a_file_is_not_read_ahead_of_what_is_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, map_of: Callable[..., FileMap]
) -> None:
    """The first write to a page had 8 MiB behind it filled with zeros."""
    monkeypatch.setattr(local_region, "map_file", map_of)
    files, path = LocalFiles(), tmp_path / "file"
    for create in (files.create, files.create_durable):
        with closing(create(path, SIZE)):
            assert not is_read_ahead(path)
        with closing(files.open(path)) as opened:
            assert is_read_ahead(path)
            opened.reserve(4096, 8192)
            assert not is_read_ahead(path)
            opened.expect_reads()
            assert is_read_ahead(path)
        opened.expect_reads()
        files.remove(path)


@pytest.mark.parametrize("map_of", [map_file, UntrackedMap])
def test_only_what_grows_fast_is_kept_in_large_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, map_of: Callable[..., FileMap]
) -> None:
    """A page by itself costs ten times as much, but a sync writes a piece whole."""
    monkeypatch.setattr(local_region, "map_file", map_of)
    path, size = tmp_path / "file", 4 * PIECE_SIZE
    with closing(LocalFiles().create(path, size)) as region:
        region.expect_fast_growth(PIECE_SIZE + 5000)
        flags = [set(one.split()) & {"rr", "hg"} for one in facts_of_maps(path, "VmFlags")]
        assert flags == [{"rr"}, {"rr", "hg"}]
        assert facts_of_maps(path, "Size") == [f"{n * PIECE_SIZE >> 10} kB" for n in (1, 3)]
        region.expect_fast_growth(size)
        region.view[:] = bytes(range(256)) * (size // 256)
        region.sync()
    region.expect_fast_growth(0)
    assert path.read_bytes() == bytes(range(256)) * (size // 256)


@pytest.mark.parametrize("map_of", [map_file, UntrackedMap])
def test_pages_are_let_go_before_they_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, map_of: Callable[..., FileMap]
) -> None:
    """A sync that had to protect each of them interrupted all cores for each."""
    monkeypatch.setattr(local_region, "map_file", map_of)
    path, size = tmp_path / "file", 64 << 10
    with closing(LocalFiles().create(path, size)) as region:
        region.view[:] = b"a" * size
        assert facts_of_maps(path, "Rss") == [f"{size >> 10} kB"]
        region.detach_pages(4096 + 100, size - 2 * 4096)
        assert facts_of_maps(path, "Rss") == ["8 kB"]
        region.view[8192] = ord("b")
        region.sync()
        assert region.view == b"a" * 8192 + b"b" + b"a" * (size - 8193)
        assert path.read_bytes() == region.view


@pytest.mark.parametrize(
    ("start", "size"), [(0, SIZE), (0, 1), (5000, SIZE), (SIZE, 1), (4096, 0), (0, 1 << 30)]
)
def test_pages_that_are_let_go_keep_what_they_hold(place: Place, start: int, size: int) -> None:
    content = bytes(range(251)) * (SIZE // 251) + bytes(SIZE % 251)
    region = place.files.create(place.root / "file", SIZE)
    region.view[:] = content
    region.expect_fast_growth(min(start, SIZE))
    region.begin_write_out(start, size)
    region.detach_pages(start, size)
    assert region.view == content
    region.view[7] = 0
    region.sync()
    region.close()
    region.detach_pages(start, size)
    region.begin_write_out(start, size)
    changed = content[:7] + b"\0" + content[8:]
    assert place.files.read(place.root / "file") == changed
    read_only = place.files.open(place.root / "file", read_only=True)
    read_only.detach_pages(start, size)
    read_only.begin_write_out(start, size)
    assert read_only.view == changed
    read_only.close()


def test_a_reserved_file_has_its_blocks_and_an_unreserved_one_has_none(tmp_path: Path) -> None:
    files = LocalFiles()
    reserved = files.create(tmp_path / "reserved", 1 << 20)
    sparse = files.create(tmp_path / "sparse", 1 << 20, reserve=False)
    assert (tmp_path / "reserved").stat().st_blocks * 512 >= 1 << 20
    assert (tmp_path / "sparse").stat().st_blocks == 0
    sparse.reserve(8192, 8193)
    sparse.reserve(8192, 12288)
    assert (tmp_path / "sparse").stat().st_blocks * 512 == 4096
    reserved.close()
    sparse.close()


def test_a_range_is_reserved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    region = LocalFiles().create(tmp_path / "file", 1 << 20, reserve=False)
    reserved: list[tuple[int, int]] = []

    def posix_fallocate(descriptor: int, start: int, size: int) -> None:
        reserved.append((start, size))

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    region.reserve(0, 0)
    region.reserve(100, 5000)
    region.reserve(0, 8192)
    region.reserve(8000, 8193)
    region.reserve(4096, 12288)
    region.reserve(500_000, 500_001)
    region.reserve((1 << 20) - 1, 1 << 20)
    region.close()
    assert reserved == [
        (0, 8192),
        (4096, 8192),
        (499_712, 4096),
        ((1 << 20) - 4096, 4096),
    ]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def posix_fallocate(descriptor: int, start: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    files = LocalFiles()
    for create in (files.create, files.create_durable):
        with pytest.raises(DiskFullError) as caught:
            create(tmp_path / "commitlog" / "file", SIZE)
        assert caught.value.size == SIZE
        assert caught.value.retriable
    assert files.list(tmp_path / "commitlog") == []
    assert files.list(tmp_path / "commitlog.new") == []


def test_a_sync_that_fails_leaves_no_durable_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fdatasync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    files = LocalFiles()
    with pytest.raises(StoreIOError, match="sync"):
        files.create_durable(tmp_path / "commitlog" / "file", SIZE)
    assert files.list(tmp_path / "commitlog") == []
    assert files.list(tmp_path / "commitlog.new") == []


def test_a_directory_on_another_disk_gets_durable_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles()
    log = tmp_path / "commitlog"
    log.mkdir()
    devices = {log: 1, tmp_path: 2}
    with monkeypatch.context() as patch:
        patch.setattr(files, "_device", devices.__getitem__)
        first = files.create_durable(log / "first", SIZE)
    first.view[:5] = b"hello"
    first.sync()
    first.close()

    def refuse(source: Path, target: Path) -> None:
        raise StoreIOError(source, "rename", OSError(errno.EXDEV, "another disk"))

    monkeypatch.setattr(files, "rename", refuse)  # A bind mount is only noticed here.
    files.create_durable(log / "second", SIZE).close()
    with pytest.raises(StoreIOError) as caught:
        files.create_durable(log / "second", SIZE)
    assert isinstance(caught.value.cause, FileExistsError)
    assert files.read(log / "first") == b"hello".ljust(SIZE, b"\0")
    assert files.read(log / "second") == bytes(SIZE)
    assert [entry.name for entry in files.list(log)] == ["first", "second"]
    assert files.list(tmp_path / "commitlog.new") == []


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite

    def short(descriptor: int, data: memoryview, position: int) -> int:
        return pwrite(descriptor, data[:3], position)

    monkeypatch.setattr(os, "pwrite", short)
    files = LocalFiles()
    files.write(tmp_path / "file", b"0123456789")
    region = files.open(tmp_path / "file")
    region.write(1, b"abcdefgh")
    region.close()
    assert files.read(tmp_path / "file") == b"0abcdefgh9"


def test_a_write_that_gets_nowhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: 0)
    with pytest.raises(StoreIOError, match="nothing was written"):
        LocalFiles().write(tmp_path / "file", b"abc")


def test_a_region_never_syncs_another_file_that_took_its_name(tmp_path: Path) -> None:
    files = LocalFiles()
    files.write(tmp_path / "file", b"abc")
    region = files.open(tmp_path / "file")
    files.write(tmp_path / "other", b"xyz")
    files.rename(tmp_path / "other", tmp_path / "file")
    with pytest.raises(StoreIOError, match="another file"):
        region.sync()
    region.close()


def test_two_threads_open_one_descriptor(tmp_path: Path) -> None:
    files = LocalFiles()
    files.write(tmp_path / "file", b"abc")
    region = files.open(tmp_path / "file")
    before = open_descriptors(tmp_path / "file")
    together = threading.Barrier(8)

    def sync() -> None:
        together.wait()
        region.sync()

    threads = [threading.Thread(target=sync) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert open_descriptors(tmp_path / "file") == before + 1
    region.close()


def own_descriptors(root: Path) -> int:
    """Return how many descriptors files below a directory have besides those of their maps."""
    of_maps = 0 if sys.version_info >= (3, 13) else 1
    counts = (open_descriptors(path) for path in root.rglob("*") if path.is_file())
    return sum(max(count - of_maps, 0) for count in counts)


def test_few_of_many_files_keep_a_descriptor_of_their_own(tmp_path: Path) -> None:
    files = LocalFiles(descriptors_max=3)
    regions = [files.create(tmp_path / str(number), SIZE) for number in range(12)]
    assert own_descriptors(tmp_path) == 3
    for turn in range(2):
        for number, region in enumerate(regions):
            region.write(turn, b"%c" % (65 + number))
            region.sync()
            assert own_descriptors(tmp_path) == 3
    for number, region in enumerate(regions):
        assert bytes(region.view[:2]) == b"%c" % (65 + number) * 2
        region.close()
    assert own_descriptors(tmp_path) == 0


def test_files_can_be_sent_to_another_process(tmp_path: Path) -> None:
    files = LocalFiles(descriptors_max=1)
    with closing(files.create(tmp_path / "here", SIZE)):
        sent = pickle.loads(pickle.dumps(files))
        regions = [sent.create(tmp_path / name, SIZE) for name in ("there", "too")]
        assert own_descriptors(tmp_path) == 2
        for region in regions:
            region.close()


def test_a_descriptor_in_use_is_not_let_go(tmp_path: Path) -> None:
    files = LocalFiles(descriptors_max=1)
    regions = [files.create(tmp_path / str(number), SIZE) for number in range(4)]
    together = threading.Barrier(len(regions))

    def write(number: int) -> None:
        together.wait()
        for at in range(300):
            regions[number].write(at, bytes([number + 1]))
            regions[number].sync()

    with ThreadPoolExecutor(len(regions)) as threads:
        list(threads.map(write, range(len(regions))))
    assert own_descriptors(tmp_path) <= len(regions)
    for number, region in enumerate(regions):
        assert bytes(region.view[:300]) == bytes([number + 1]) * 300
        region.close()


def test_a_store_of_many_queues_needs_few_descriptors_besides_its_maps(tmp_path: Path) -> None:
    config = small_config(tmp_path / "store")
    with MessageStore.open(config, files=LocalFiles(descriptors_max=5), background=False) as store:
        for turn in range(3):
            for number in range(40):
                message = PutMessage(
                    topic=f"t{number}", queue_id=0, body=b"x", born_host=HOST, store_host=HOST
                )
                assert store.put(message).ok, turn
            store.dispatch()
            store.flush()
            store.checkpoint()
            assert own_descriptors(tmp_path) <= 5 + 1  # The lock of the store is no mapped file.
        assert {store.max_offset_in_queue(f"t{number}", 0) for number in range(40)} == {3}


def test_a_link_to_nowhere_is_listed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert [entry.name for entry in LocalFiles().list(tmp_path)] == ["link"]


LOCK_IN_ANOTHER_PROCESS = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError:
        sys.exit(3)
"""


def test_another_process_is_locked_out_as_long_as_the_lock_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", LOCK_IN_ANOTHER_PROCESS, str(path)]
    lock = LocalFiles().lock(path)
    with pytest.raises(StoreLockedError):
        LocalFiles().lock(tmp_path / "." / "x" / ".." / "lock")
    assert subprocess.run(command, check=False).returncode == 3
    lock.release()
    assert subprocess.run(command, check=False).returncode == 0


HOLD_IN_ANOTHER_PROCESS = """
import fcntl, sys
with open(sys.argv[1], "w+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD_IN_ANOTHER_PROCESS, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match="another broker"):
            LocalFiles().lock(path)
        holder.communicate()
    LocalFiles().lock(path).release()


def test_pages_are_loaded_where_they_are_not_in_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 64 * 4096
    with path.open("wb") as file:
        file.write(b"x" * size)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    region = LocalFiles().open(path)
    try:
        assert not region.is_resident(0, size)
        region.load(5000, 100)
        assert region.is_resident(5000, 100)
        region.load(0, size + 4096)
        assert region.is_resident(0, size)
        assert region.is_resident(4097, 1)
        assert region.is_resident(size - 1, 100)
    finally:
        region.close()


def test_a_new_file_is_in_memory_once_it_is_written(place: Place) -> None:
    region = place.files.create(place.root / "file", SIZE)
    region.view[:] = b"x" * SIZE
    assert region.is_resident(0, SIZE)
    region.load(0, SIZE)
    assert region.view == b"x" * SIZE
    # Nobody who asked keeps the map.
    region.close()


class _SyncedOneByOne(LocalFiles):
    """Notes what is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []

    def sync(self, path: Path) -> None:
        self.synced.append(path)
        super().sync(path)

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)
        super().sync_directory(path)


@pytest.mark.parametrize("has_call", [True, False])
def test_where_no_call_syncs_a_file_system_each_file_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_call: bool
) -> None:
    monkeypatch.setattr(local_files, "sync_file_system", lambda _: has_call)
    files = _SyncedOneByOne()
    path = tmp_path / "topic" / "0" / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"units")
    files.sync_below(tmp_path)
    expected = [] if has_call else [path, path.parent, path.parent.parent, tmp_path]
    assert sorted(files.synced) == sorted(expected)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such call")
def test_linux_syncs_a_file_system_in_one_call(tmp_path: Path) -> None:
    with tmp_path.joinpath("file").open("wb") as file:
        assert sync_file_system(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_file_system(file_descriptor_that_is_closed())


def file_descriptor_that_is_closed() -> int:
    reader, writer = os.pipe()
    os.close(writer)
    os.close(reader)
    return reader
