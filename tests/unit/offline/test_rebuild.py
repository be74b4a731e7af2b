"""Queues and index made anew are those the engine wrote."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from flintmq.format.stored.consume_queue import PRE_BLANK, UNIT_SIZE
from flintmq.offline import OutputError, RebuildReport, SizeOptions, find_store, rebuild
from flintmq.offline.derive import DerivedQueue
from flintmq.offline.rebuild import WAITING_SIZE_MAX, QueueWriter
from flintmq.store.files.interface import MappedRegion
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.unsynced import SYNC_EACH_MAX
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import (
    ENTRIES,
    LEVELS,
    QUEUE_FILE_SIZE,
    SLOTS,
    START_MS,
    check,
    content,
    fingerprint,
    log_file,
    make_store,
    message,
    overwrite,
    problems,
    put,
    small_config,
)
from tests.kits.store.waiting_store import deliver_all, delivered, put_at


def rebuilt(
    root: Path,
    output: Path,
    *,
    queues: bool = True,
    index: bool = True,
    sizes: SizeOptions | None = None,
) -> RebuildReport:
    layout = find_store(root, sizes=sizes)
    return rebuild(layout, output, queues=queues, index=index, delay_levels=LEVELS)


def test_the_bytes_are_those_of_the_engine(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    before = fingerprint(root)
    report = rebuilt(root, tmp_path / "out")
    assert not len(report.findings)
    assert (report.record_count, report.unit_count, report.queue_count) == (100, 100, 2)
    assert (report.index_entry_count, report.index_file_count) == (200, 3)
    assert content(tmp_path / "out" / "consumequeue") == content(root / "consumequeue")
    made = content(tmp_path / "out" / "index")
    assert list(made.values()) == list(content(root / "index").values())
    assert fingerprint(root) == before


def test_units_of_waiting_messages_have_their_due_times(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        for number in range(30):
            assert put_at(store, f"m{number}", START_MS + 1 + number**4).ok
        clock.advance(1000)
        deliver_all(store)
    assert check(root).is_sound
    report = rebuilt(root, tmp_path / "out")
    assert not len(report.findings)
    assert content(tmp_path / "out" / "consumequeue") == content(root / "consumequeue")
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
        (tmp_path / "out" / name).rename(root / name)
    clock.set(START_MS + 30**4)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        deliver_all(store)
        assert delivered(store) == [f"m{number}" for number in range(30)]


def test_index_files_are_named_by_the_message_they_begin_with(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    rebuilt(root, tmp_path / "one")
    rebuilt(root, tmp_path / "two")
    names = list(content(tmp_path / "one" / "index"))
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert names == sorted(names)
    # A message has two keys and a file room for 69, so message 34 is in two files.
    seconds = [int(name[12:14]) + 60 * int(name[10:12]) for name in names]
    assert [one - seconds[0] for one in seconds] == [0, 34, 69]


def test_a_rebuilt_store_is_sound_and_opens(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    rebuilt(root, tmp_path / "out")
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
        (tmp_path / "out" / name).rename(root / name)
    assert check(root).is_sound
    clock = ManualClock(START_MS + 10**6)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        assert store.max_offset_in_queue("orders", 1) == 50
        put(store, clock, 10, first=100)
    assert check(root).is_sound


def test_either_may_be_made_alone(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 10)
    assert rebuilt(root, tmp_path / "q", index=False).index_file_count == 0
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["consumequeue"]
    assert rebuilt(root, tmp_path / "i", queues=False).unit_count == 0
    assert [path.name for path in (tmp_path / "i").iterdir()] == ["index"]


def test_sizes_may_be_given_where_nothing_is_left_to_detect_them(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    original = content(root / "consumequeue"), list(content(root / "index").values())
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    out = tmp_path / "out"
    sizes = SizeOptions(queue_file_size=QUEUE_FILE_SIZE, hash_slots=SLOTS, index_entries=ENTRIES)
    rebuilt(root, out, sizes=sizes)
    assert (content(out / "consumequeue"), list(content(out / "index").values())) == original


def test_a_queue_whose_beginning_expired_begins_with_blank_units(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    report = rebuilt(root, tmp_path / "out", index=False)
    assert not len(report.findings)
    first = min((tmp_path / "out" / "consumequeue" / "orders" / "0").iterdir())
    assert int(first.name) == QUEUE_FILE_SIZE
    made = first.read_bytes()
    kept = (root / "consumequeue" / "orders" / "0" / first.name).read_bytes()
    blanks = made.count(PRE_BLANK)
    assert blanks > 0
    assert made == PRE_BLANK * blanks + kept[blanks * UNIT_SIZE :]


def test_lost_records_leave_blank_units_as_recovery_does(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    overwrite(log_file(root, 1), 0, bytes(40))
    report = rebuilt(root, tmp_path / "out", index=False)
    assert problems(report.findings) == {"damaged-record": 1, "queue-offset-gap": 1}
    made = content(tmp_path / "out" / "consumequeue")
    kept = content(root / "consumequeue")
    differing = [name for name in kept if made[name] != kept[name]]
    assert len(differing) == 1
    assert made[differing[0]].count(PRE_BLANK) == 1


class CountedFiles(LocalFiles):
    """Counts how often a file is opened, to be written or to be synced."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: Counter[Path] = Counter()
        self.calls: Counter[str] = Counter()

    def create(self, path: Path, size: int, *, reserve: bool = True) -> MappedRegion:
        self.opened[path] += 1
        return super().create(path, size, reserve=reserve)

    def open(self, path: Path, *, read_only: bool = False) -> MappedRegion:
        self.opened[path] += 1
        return super().open(path, read_only=read_only)

    def sync(self, path: Path) -> None:
        self.calls["sync"] += 1
        super().sync(path)

    def sync_below(self, path: Path) -> None:
        self.calls["sync_below"] += 1
        super().sync_below(path)


def fed(writer: QueueWriter, queue: DerivedQueue, count: int) -> None:
    """Hand on so many units, one at a time."""
    for _ in range(count):
        queue.units[:] = bytes([queue.next % 256]) * UNIT_SIZE
        queue.next += 1
        writer.take(queue)
        queue.first = queue.next


@pytest.mark.parametrize("waiting_max", [WAITING_SIZE_MAX, 1000, 0])
def test_queues_get_the_same_units_however_long_these_wait(
    tmp_path: Path, waiting_max: int
) -> None:
    layout = find_store(make_store(tmp_path / "store"))
    files = CountedFiles()
    report = RebuildReport(output=tmp_path / "out")
    writer = QueueWriter(report.output, layout, files, report, waiting_size_max=waiting_max)
    per_file = layout.queue_file_size // UNIT_SIZE
    kept, anew = DerivedQueue("kept", 0, 3), DerivedQueue("anew", 0, 0)
    for queue in (kept, anew):
        writer.begin(queue)
        fed(writer, queue, per_file)
    assert writer.jump(anew, 0, 0)
    anew.first = anew.next = 0
    fed(writer, anew, 2)
    writer.finish()
    units = PRE_BLANK * 3 + b"".join(bytes([at]) * UNIT_SIZE for at in range(3, per_file + 3))
    expected = {
        "kept/0/" + f"{0:020}": units[: layout.queue_file_size],
        "kept/0/" + f"{layout.queue_file_size:020}": units[layout.queue_file_size :],
        "anew/0/" + f"{0:020}": bytes(UNIT_SIZE) + b"\1" * UNIT_SIZE,
    }
    made = content(tmp_path / "out")
    assert made == {
        name: data.ljust(layout.queue_file_size, b"\0") for name, data in sorted(expected.items())
    }
    is_opened_once = set(files.opened.values()) == {1}
    assert is_opened_once == (waiting_max == WAITING_SIZE_MAX)


@pytest.mark.parametrize("extra", [0, 1])
def test_thousands_of_files_are_synced_by_one_call(tmp_path: Path, extra: int) -> None:
    layout = find_store(make_store(tmp_path / "store"))
    files = CountedFiles()
    writer = QueueWriter(tmp_path / "out", layout, files, RebuildReport(output=tmp_path / "out"))
    for number in range(SYNC_EACH_MAX + extra):
        queue = DerivedQueue(f"topic-{number}", 0, 0)
        writer.begin(queue)
        fed(writer, queue, 1)
    writer.finish()
    each = {"sync": SYNC_EACH_MAX}
    assert files.calls == ({"sync_below": 1} if extra else each)


def test_a_topic_that_was_made_anew_has_only_its_new_units(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        put(store, clock, 90)
        store.clean_unused_topics(set())
        put(store, clock, 10)
    report = rebuilt(root, tmp_path / "out", index=False)
    assert not len(report.findings)
    assert content(tmp_path / "out" / "consumequeue") == content(root / "consumequeue")


def test_delayed_and_further_queues_are_made_too(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock(START_MS)
    config = small_config(root, enable_multi_dispatch=True, enable_lmq=True)
    with MessageStore.open(config, clock=clock, background=False) as store:
        for number in range(30):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,plain"} if number % 2 else {"DELAY": "3"}
            assert store.put(message(number, properties=properties)).ok
        store.dispatch()
    rebuilt(root, tmp_path / "out", index=False)
    assert content(tmp_path / "out" / "consumequeue") == content(root / "consumequeue")


@pytest.mark.parametrize("place", [".", "sub", "commitlog", "consumequeue/x"])
def test_nothing_is_written_into_the_store(tmp_path: Path, place: str) -> None:
    root = make_store(tmp_path / "store", 5)
    before = fingerprint(root)
    with pytest.raises(OutputError, match="lies in the store"):
        rebuilt(root, root / place)
    link = tmp_path / "link"
    link.symlink_to(root)
    with pytest.raises(OutputError, match="lies in the store"):
        rebuilt(root, link / place)
    assert fingerprint(root) == before


def test_an_output_that_is_used_already_is_refused(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 5)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(OutputError, match="not empty"):
        rebuilt(root, out)
    with pytest.raises(OutputError):
        rebuilt(root, out / "mine")
    (out / "mine").unlink()
    rebuilt(root, out)


def test_an_index_of_unknown_shape_is_refused(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 20)
    path = min((root / "index").iterdir())
    overwrite(path, 40, bytes(number * 37 % 251 for number in range(path.stat().st_size - 40)))
    with pytest.raises(OutputError, match="unknown; give hash_slots and index_entries"):
        rebuilt(root, tmp_path / "out")
