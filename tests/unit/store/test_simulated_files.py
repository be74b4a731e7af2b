"""What ``SimulatedFiles`` loses, and what it never loses."""

from pathlib import Path
from random import Random

import pytest

from flintmq.store.errors import DiskFullError, StoreIOError, StoreLockedError
from flintmq.testing import ROOT, Call, Fault, ManualClock, SimulatedCrash, SimulatedFiles

PAGE = 4096
PATH = ROOT / "file"
IMAGE_COUNT = 60


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def durable(files: SimulatedFiles, content: bytes, path: Path = PATH) -> None:
    files.write(path, content)
    files.sync(path)
    files.sync_directory(path.parent)


def images(files: SimulatedFiles, seed: int = 1, count: int = IMAGE_COUNT) -> list[SimulatedFiles]:
    return list(files.crash_images(Random(seed), count))


def content(files: SimulatedFiles, path: Path = PATH) -> bytes | None:
    return files.read(path) if files.exists(path) else None


# -- contents --------------------------------------------------------------------------------


def test_what_is_synced_survives_everything(files: SimulatedFiles) -> None:
    durable(files, b"kept" * 5000)
    assert {content(image) for image in images(files)} == {b"kept" * 5000}


def test_the_first_two_images_are_nothing_and_everything(files: SimulatedFiles) -> None:
    durable(files, b"a" * PAGE)
    region = files.open(PATH)
    region.view[:] = b"b" * PAGE
    files.write(ROOT / "new", b"new")
    nothing, everything = images(files, count=0)
    assert (content(nothing), content(nothing, ROOT / "new")) == (b"a" * PAGE, None)
    assert (content(everything), content(everything, ROOT / "new")) == (b"b" * PAGE, b"new")


def test_every_dirty_page_is_old_new_or_torn(files: SimulatedFiles) -> None:
    count = 4
    durable(files, b"a" * PAGE * count)
    region = files.open(PATH)
    region.view[: 2 * PAGE] = b"b" * 2 * PAGE
    old, new, torn = False, False, set()
    for image in images(files):
        found = content(image)
        assert found is not None
        assert len(found) == PAGE * count
        assert found[2 * PAGE :] == b"a" * 2 * PAGE
        for page in (found[:PAGE], found[PAGE : 2 * PAGE]):
            assert set(page) <= set(b"ab")
            old |= page == b"a" * PAGE
            new |= page == b"b" * PAGE
            if len(set(page)) == 2:
                torn.add(page)
            for word in range(0, PAGE, 8):
                assert len(set(page[word : word + 8])) == 1
    assert old
    assert new
    assert len(torn) > 10


def test_a_file_never_synced_may_be_found_empty(files: SimulatedFiles) -> None:
    region = files.create(PATH, 2 * PAGE)
    region.view[:5] = b"hello"
    files.sync_directory(ROOT)
    sizes = {image.size(PATH) for image in images(files)}
    assert sizes == {0, 2 * PAGE}


def test_content_that_is_overwritten_may_be_found_in_every_state(files: SimulatedFiles) -> None:
    durable(files, b"old content")
    files.write(PATH, b"new")
    found = {content(image) for image in images(files)}
    assert {b"old content", b"", b"new"} <= found


def test_a_sync_covers_writes_through_the_view_and_past_it(files: SimulatedFiles) -> None:
    region = files.create(PATH, 2 * PAGE)
    region.view[:5] = b"hello"
    region.write(PAGE, b"world")
    region.sync()
    files.sync_directory(ROOT)
    expected = b"hello".ljust(PAGE, b"\0") + b"world".ljust(PAGE, b"\0")
    assert {content(image) for image in images(files)} == {expected}


def test_the_kernel_may_write_back_what_nobody_synced(files: SimulatedFiles) -> None:
    durable(files, b"a" * 20 * PAGE)
    region = files.open(PATH)
    region.view[:] = b"b" * 20 * PAGE
    files.write_back(Random(3))
    region.view[:] = b"c" * 20 * PAGE
    nothing = content(images(files, count=0)[0])
    assert nothing is not None
    assert set(nothing) == set(b"ab")
    files.write_back(Random(3), share=1)
    assert content(images(files, count=0)[0]) == b"c" * 20 * PAGE


# -- names -----------------------------------------------------------------------------------


def test_a_new_name_needs_its_directory_synced(files: SimulatedFiles) -> None:
    files.write(PATH, b"abc")
    files.sync(PATH)
    assert {content(image) for image in images(files)} == {None, b"abc"}
    files.sync_directory(ROOT)
    assert {content(image) for image in images(files)} == {b"abc"}


def test_all_below_a_directory_can_be_made_durable_at_once(files: SimulatedFiles) -> None:
    paths = [ROOT / name / "0" / "file" for name in ("a", "b")]
    for path in paths:
        files.make_directory(path.parent)
        files.write(path, path.parts[-3].encode())
    files.sync_below(ROOT)
    for image in images(files):
        assert [image.read(path) for path in paths] == [b"a", b"b"]


def test_a_removed_name_may_come_back(files: SimulatedFiles) -> None:
    durable(files, b"abc")
    files.remove(PATH)
    assert {content(image) for image in images(files)} == {None, b"abc"}
    files.sync_directory(ROOT)
    assert {content(image) for image in images(files)} == {None}


def test_a_rename_is_there_whole_or_not_at_all(files: SimulatedFiles) -> None:
    source, target = ROOT / "a" / "x", ROOT / "b" / "x"
    for path, data in ((source, b"new"), (target, b"old")):
        files.make_directory(path.parent)
        durable(files, data, path)
    files.sync_directory(ROOT)
    files.rename(source, target)
    found = {(content(image, source), content(image, target)) for image in images(files)}
    assert found == {(b"new", b"old"), (None, b"new")}
    files.sync_directory(target.parent)
    found = {(content(image, source), content(image, target)) for image in images(files)}
    assert found == {(None, b"new")}


def test_operations_on_one_name_keep_their_order(files: SimulatedFiles) -> None:
    backup, fresh = ROOT / "file.bak", ROOT / "file.tmp"
    durable(files, b"1")
    durable(files, b"2", fresh)
    files.rename(PATH, backup)
    files.rename(fresh, PATH)
    found = {
        tuple(content(image, path) for path in (PATH, backup, fresh)) for image in images(files)
    }
    assert found == {(b"1", None, b"2"), (None, b"1", b"2"), (b"2", b"1", None)}


def test_a_directory_that_is_not_durable_takes_its_files_along(files: SimulatedFiles) -> None:
    path = ROOT / "a" / "b" / "file"
    files.make_directory(path.parent)
    durable(files, b"abc", path)
    files.sync_directory(ROOT / "a")
    assert {content(image, path) for image in images(files)} == {None, b"abc"}
    files.sync_directory(ROOT)
    assert {content(image, path) for image in images(files)} == {b"abc"}


def test_later_operations_may_survive_without_earlier_ones(files: SimulatedFiles) -> None:
    names = [ROOT / str(number) for number in range(4)]
    for name in names:
        files.write(name, b"x")
    found = {tuple(image.exists(name) for name in names) for image in images(files)}
    prefixes = {tuple(number < count for number in range(4)) for count in range(5)}
    assert found > prefixes


# -- processes and machines ------------------------------------------------------------------


def test_a_killed_process_loses_nothing_but_its_locks(files: SimulatedFiles) -> None:
    lock = files.lock(ROOT / "lock")
    region = files.create(PATH, PAGE)
    region.view[:5] = b"hello"
    after = files.process_crash_image()
    assert content(after) == b"hello".ljust(PAGE, b"\0")
    with pytest.raises(StoreLockedError):
        files.lock(ROOT / "lock")
    after.lock(ROOT / "lock").release()
    lock.release()
    region.view[:5] = b"later"
    assert content(after) == b"hello".ljust(PAGE, b"\0")


def test_a_killed_process_has_not_synced_for_the_next_one(files: SimulatedFiles) -> None:
    files.write(PATH, b"abc")
    after = files.process_crash_image()
    assert content(images(after, count=0)[0]) is None
    after.sync(PATH)
    after.sync_directory(ROOT)
    assert {content(image) for image in images(after)} == {b"abc"}


def test_a_crash_comes_before_its_call_and_ends_everything(files: SimulatedFiles) -> None:
    files.write(PATH, b"abc")
    region = files.open(PATH)
    region.view[:1] = b"A"
    files.crash_at = len(files.calls) + 1
    region.sync()
    for _ in range(2):
        with pytest.raises(SimulatedCrash) as caught:
            files.sync_directory(ROOT)
        assert caught.value.call_number == files.crash_at
    assert files.crashed
    with pytest.raises(SimulatedCrash):
        region.sync()
    region.view[:1] = b"Z"
    region.close()
    assert {content(image) for image in images(files)} == {None, b"Abc"}
    assert content(files.process_crash_image()) == b"Abc"


def test_each_change_is_told_before_it_happens(files: SimulatedFiles) -> None:
    told: list[tuple[int, bytes | None]] = []
    files.before_change = lambda number: told.append((number, content(files.process_crash_image())))
    files.write(PATH, b"abc")
    assert files.read(PATH) == b"abc"
    files.write(PATH, b"abcd")
    files.remove(PATH)
    assert told == [(0, None), (2, b"abc"), (3, b"abcd")]
    assert [number for number, _ in told] == files.change_numbers()


def test_calls_are_counted(files: SimulatedFiles) -> None:
    files.write(PATH, b"abc")
    assert files.read(PATH) == b"abc"
    files.sync(PATH)
    assert files.calls == [
        Call("write", PATH, True),
        Call("read", PATH, False),
        Call("sync", PATH, True),
    ]
    assert (files.count("sync"), files.change_numbers()) == (1, [0, 2])


@pytest.mark.parametrize("seed", range(3))
def test_a_durable_file_is_whole_or_not_there_wherever_the_crash_comes(seed: int) -> None:
    path = ROOT / "commitlog" / "00000000000000000000"
    crash_at = 0
    while True:
        files = SimulatedFiles()
        files.crash_at = crash_at
        try:
            files.create_durable(path, 3 * PAGE)
        except SimulatedCrash:
            expected: tuple[list[str], ...] = ([], [path.name])
        else:
            expected = ([path.name], [path.name])
        for image in images(files, seed, count=20):
            names = [entry.name for entry in image.list(path.parent)]
            assert names in expected
            assert content(image, path) in (None, bytes(3 * PAGE))
        if not files.crashed:
            break
        crash_at += 1
    assert crash_at > 8


# -- failures --------------------------------------------------------------------------------


def test_any_call_can_be_made_to_fail(files: SimulatedFiles) -> None:
    files.fail(1, Fault.EIO)
    files.write(PATH, b"abc")
    with pytest.raises(StoreIOError):
        files.read(PATH)
    assert files.read(PATH) == b"abc"
    files.fail_next("rename", Fault.ENOSPC, name="other")
    files.rename(PATH, ROOT / "other")
    with pytest.raises(DiskFullError):
        files.rename(ROOT / "other", PATH)
    assert content(files, ROOT / "other") == b"abc"


def test_a_short_write_leaves_half(files: SimulatedFiles) -> None:
    files.fail_next("write", Fault.SHORT_WRITE)
    with pytest.raises(DiskFullError):
        files.write(PATH, b"12345678")
    assert content(files) == b"1234"
    region = files.open(PATH)
    files.fail_next("region_write", Fault.SHORT_WRITE)
    with pytest.raises(DiskFullError):
        region.write(0, b"ab")
    assert bytes(region.view) == b"a234"


def test_pages_a_failed_sync_has_dropped_are_not_synced_later(files: SimulatedFiles) -> None:
    durable(files, b"a" * 3 * PAGE)
    region = files.open(PATH)
    region.view[: 2 * PAGE] = b"b" * 2 * PAGE
    files.fail_next("region_sync", Fault.EIO)
    with pytest.raises(StoreIOError):
        region.sync()
    region.view[:1] = b"c"
    region.sync()
    assert bytes(region.view) == b"c" + b"b" * (2 * PAGE - 1) + b"a" * PAGE
    nothing = content(images(files, count=0)[0])
    assert nothing == b"c" + b"b" * (PAGE - 1) + b"a" * 2 * PAGE


def test_writing_where_nothing_is_reserved_fails_the_sync(files: SimulatedFiles) -> None:
    region = files.create(PATH, 2 * PAGE, reserve=False)
    region.reserve(0, 10)
    region.view[PAGE] = 1
    with pytest.raises(AssertionError, match=r"reserved: \[1\]"):
        region.sync()
    region.reserve(PAGE, PAGE + 1)
    region.sync()


def test_reservations_that_were_not_synced_are_lost(files: SimulatedFiles) -> None:
    region = files.create(PATH, 2 * PAGE, reserve=False)
    region.sync()
    files.sync_directory(ROOT)
    region.reserve(0, 10)
    after = images(files, count=0)[1].open(PATH)
    after.view[0] = 1
    with pytest.raises(AssertionError, match="reserved"):
        after.sync()


def test_a_disk_has_no_more_room_than_it_has(files: SimulatedFiles) -> None:
    files.capacity = 4 * PAGE
    region = files.create(PATH, 2 * PAGE)
    sparse = files.create(ROOT / "sparse", 10 * PAGE, reserve=False)
    sparse.reserve(0, PAGE)
    usage = files.usage(ROOT)
    assert usage is not None
    assert (usage.total, usage.free, usage.used_ratio) == (4 * PAGE, PAGE, 0.75)
    with pytest.raises(DiskFullError):
        files.create(ROOT / "more", 2 * PAGE)
    assert not files.exists(ROOT / "more")
    with pytest.raises(DiskFullError):
        sparse.reserve(0, 3 * PAGE)
    with pytest.raises(DiskFullError):
        sparse.write(5 * PAGE - 1, b"ab")
    with pytest.raises(DiskFullError):
        files.write(ROOT / "more", b"x" * 2 * PAGE)
    region.close()
    files.remove(PATH)
    sparse.reserve(0, 3 * PAGE)


def test_times_come_from_the_clock() -> None:
    clock = ManualClock(1000)
    files = SimulatedFiles(clock=clock)
    region = files.create(PATH, PAGE)
    region.sync()
    clock.advance(5)
    region.sync()
    assert files.modified_ms(PATH) == 1000
    region.view[0] = 1
    region.sync()
    assert files.modified_ms(PATH) == 1005
    clock.set(2000)
    region.write(0, b"x")
    assert files.modified_ms(PATH) == 2000
    assert clock.monotonic() == 0.005


@pytest.mark.parametrize("seed", range(20))
def test_images_depend_on_the_seed_alone(seed: int) -> None:
    def found() -> list[bytes | None]:
        files = SimulatedFiles()
        durable(files, b"a" * 2 * PAGE)
        files.open(PATH).view[:] = b"b" * 2 * PAGE
        files.rename(PATH, ROOT / "other")
        return [content(image) for image in images(files, seed, count=5)]

    assert found() == found()
