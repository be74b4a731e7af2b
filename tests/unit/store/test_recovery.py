import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from flintmq.format.java import tags_code
from flintmq.format.stored.checkpoint import (
    FILE_SIZE,
    MARKS_AT,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from flintmq.format.stored.record_encoding import encode_blank
from flintmq.format.stored.record_scan import check_record
from flintmq.store.config import DamagedLogPolicy
from flintmq.store.errors import StoreLoadError
from flintmq.store.log.torn_write import is_torn
from flintmq.store.message_store import MessageStore
from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.offline_stores import small_config
from tests.kits.store.store_kit import (
    LOG,
    STORE_MS,
    batch,
    bodies,
    message,
    new_files,
    open_store,
    records,
    sync_store,
    turn,
)

CHECKPOINT = ROOT / "checkpoint"
QUEUES = ROOT / "consumequeue"
INDEX = ROOT / "index"


@pytest.fixture
def files() -> SimulatedFiles:
    return new_files()


def put_some(store: MessageStore, count: int = 30) -> None:
    for number in range(count):
        store.put(message(b"%d" % number, queue_id=number % 3, properties={"KEYS": f"k{number}"}))
        turn(store, 1000)


def filled(files: SimulatedFiles, *, cleanly: bool, count: int = 30) -> SimulatedFiles:
    """Return the files of a store with messages, stopped or killed."""
    store = open_store(files)
    put_some(store, count)
    return ended(store, files, cleanly=cleanly)


def ended(store: MessageStore, files: SimulatedFiles, *, cleanly: bool) -> SimulatedFiles:
    """Return the files of a store that was stopped or killed."""
    if cleanly:
        store.close()
        return files
    store.dispatch()
    store.checkpoint()
    return files.process_crash_image()


def remove_tree(files: SimulatedFiles, directory: Path) -> None:
    for entry in files.list(directory):
        path = directory / entry.name
        if entry.is_directory:
            remove_tree(files, path)
        else:
            files.remove(path)
    files.remove_directory(directory)


def void_marks(files: SimulatedFiles, **changes: int) -> None:
    """Leave in the checkpoint what a Java broker would: three times and nothing else."""
    page = decode_checkpoint(files.read(CHECKPOINT))
    files.write(CHECKPOINT, encode_checkpoint(replace(page, marks=None, **changes)))


def assert_whole(store: MessageStore, count: int = 30) -> None:
    """Assert that a store has every message of ``put_some`` in every view."""
    for queue_id in range(3):
        assert bodies(store, "T", queue_id) == [b"%d" % n for n in range(queue_id, count, 3)]
    assert store.index is not None
    offsets = [
        file.entry(number)[1] for file in store.index.files for number in range(1, file.count)
    ]
    assert len(offsets) == count
    for number in range(count):
        assert len(store.index.query("T", f"k{number}", 9, 0, 1 << 60)) == 1


# -- nothing to do ---------------------------------------------------------------------------


def test_an_empty_directory_is_an_empty_store(files: SimulatedFiles) -> None:
    report = open_store(files).recovery_report
    assert (report.clean_exit, report.start_reason, report.log_end) == (True, "no log files", 0)
    assert report.problems == []


def test_after_a_clean_stop_nothing_is_read_again(files: SimulatedFiles) -> None:
    store = open_store(filled(files, cleanly=True))
    report = store.recovery_report
    assert (report.clean_exit, report.start_reason) == (True, "exact marks")
    assert (report.records_scanned, report.units_rebuilt, report.units_cut) == (0, 0, 0)
    assert report.problems == []
    assert_whole(store)


def test_after_a_crash_the_scan_begins_at_the_marks(files: SimulatedFiles) -> None:
    store = open_store(files)
    put_some(store, 20)
    store.dispatch()
    store.checkpoint()
    marked = store.log.end_offset
    for number in range(20, 30):
        store.put(message(b"%d" % number, queue_id=number % 3, properties={"KEYS": f"k{number}"}))
    again = open_store(files.process_crash_image())
    report = again.recovery_report
    assert (report.clean_exit, report.scan_start, report.records_scanned) == (False, marked, 10)
    assert (report.units_rebuilt, report.index_entries_rebuilt) == (10, 10)
    assert "abnormal exit; log 0.." in report.summary
    assert "rebuilt 10 queue units; rebuilt 10 index entries" in report.summary
    assert_whole(again)


def test_queue_offsets_go_on_where_they_were(files: SimulatedFiles) -> None:
    store = open_store(filled(files, cleanly=False))
    assert [store.put(message(queue_id=number)).queue_offset for number in range(4)] == [
        10,
        10,
        10,
        0,
    ]


# -- views that are missing ------------------------------------------------------------------


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("what", [QUEUES, QUEUES / "T" / "1", QUEUES / "T" / "2", INDEX])
@pytest.mark.parametrize("marks", [True, False])
def test_what_is_missing_of_the_views_is_made_again(
    files: SimulatedFiles, cleanly: bool, what: Path, marks: bool
) -> None:
    """Java loses the units or the keys for good in each of these cases."""
    files = filled(files, cleanly=cleanly)
    remove_tree(files, what)
    if not marks:
        void_marks(files)
    assert_whole(open_store(files))


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_queue_that_is_behind_is_filled(files: SimulatedFiles, cleanly: bool) -> None:
    files = filled(files, cleanly=cleanly)
    path = QUEUES / "T" / "1" / f"{0:020d}"
    files.write(path, files.read(path)[: 4 * 20] + bytes(320))
    store = open_store(files)
    assert_whole(store)
    assert "T/1" in store.recovery_report.queues_filled


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_queue_file_of_a_wrong_size_is_made_again(files: SimulatedFiles, cleanly: bool) -> None:
    files = filled(files, cleanly=cleanly)
    files.write(QUEUES / "T" / "0" / f"{0:020d}", b"short")
    store = open_store(files)
    assert_whole(store)
    assert any("5 bytes instead of 400" in text for text in store.recovery_report.problems)


@pytest.mark.parametrize("cleanly", [True, False])
def test_an_index_file_of_a_wrong_size_is_made_again(files: SimulatedFiles, cleanly: bool) -> None:
    files = filled(files, cleanly=cleanly, count=100)
    names = [entry.name for entry in files.list(INDEX)]
    assert len(names) == 3
    files.write(INDEX / names[1], b"short")
    store = open_store(files)
    assert_whole(store, 100)
    store.close()
    assert open_store(files).recovery_report.problems == []


def test_a_delayed_message_is_due_when_it_was(files: SimulatedFiles) -> None:
    """Java parses its delay levels after recovery: a rebuilt message is due at once."""
    store = open_store(files)
    store.put(message(properties={"DELAY": "3"}))
    again = open_store(files.process_crash_image())
    queue = again.queues.get("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    unit = queue.unit_at(0)
    assert unit is not None
    assert unit[2] == STORE_MS + 10_000


# -- without marks ---------------------------------------------------------------------------


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_checkpoint_without_marks_is_that_of_a_java_broker(
    files: SimulatedFiles, cleanly: bool
) -> None:
    files = filled(files, cleanly=cleanly)
    void_marks(files)
    store = open_store(files)
    assert store.recovery_report.start_reason != "exact marks"
    assert_whole(store)


def test_without_times_the_oldest_file_is_the_start(files: SimulatedFiles) -> None:
    files = filled(files, cleanly=False, count=100)
    void_marks(files, physic=0, logics=0, index=0)
    store = open_store(files)
    report = store.recovery_report
    assert (report.start_reason, report.scan_start, report.records_scanned) == (
        "oldest file",
        0,
        100,
    )
    assert_whole(store, 100)


def test_the_times_choose_the_newest_file_that_is_old_enough(files: SimulatedFiles) -> None:
    files = filled(files, cleanly=False, count=100)
    void_marks(files)
    store = open_store(files)
    report = store.recovery_report
    assert report.start_reason == "file before the checkpoint's times"
    assert 0 < report.scan_start < report.log_end
    assert report.scan_start % 4096 == 0
    assert_whole(store, 100)


def test_after_a_clean_stop_three_files_are_read_again(files: SimulatedFiles) -> None:
    files = filled(files, cleanly=True, count=150)
    void_marks(files)
    store = open_store(files)
    log_files = len(store.log.files)
    assert log_files > 3
    assert store.recovery_report.scan_start == 4096 * (log_files - 3)
    assert_whole(store, 150)


@pytest.mark.parametrize("at", [0, 8, 16, MARKS_AT, MARKS_AT + 40, MARKS_AT + 80])
def test_a_damaged_checkpoint_costs_a_scan(files: SimulatedFiles, at: int) -> None:
    files = filled(files, cleanly=False)
    page = bytearray(files.read(CHECKPOINT))
    page[at + 5] ^= 0x55
    files.write(CHECKPOINT, bytes(page))
    assert_whole(open_store(files))


@pytest.mark.parametrize("page", [b"", b"short", bytes(FILE_SIZE), bytes(FILE_SIZE + 1), None])
def test_a_checkpoint_that_is_none_costs_a_scan(files: SimulatedFiles, page: bytes | None) -> None:
    files = filled(files, cleanly=False)
    files.remove(CHECKPOINT)
    if page is not None:
        files.write(CHECKPOINT, page)
    store = open_store(files)
    assert_whole(store)
    assert files.size(CHECKPOINT) == FILE_SIZE


def test_marks_behind_the_log_are_not_believed(files: SimulatedFiles) -> None:
    files = filled(files, cleanly=False)
    page = decode_checkpoint(files.read(CHECKPOINT))
    assert page.marks is not None
    marks = page.marks._replace(log_flushed=1 << 40, dispatched=1 << 40)
    files.write(
        CHECKPOINT,
        encode_checkpoint(Checkpoint(page.physic, page.logics, page.index, marks)),
    )
    store = open_store(files)
    assert "where no record starts" in store.recovery_report.problems[0]
    assert_whole(store)


# -- the end of the log ----------------------------------------------------------------------


def damage(files: SimulatedFiles, offset: int, data: bytes) -> None:
    """Write over bytes of the log."""
    path = LOG / f"{offset // 4096 * 4096:020d}"
    content = bytearray(files.read(path))
    content[offset % 4096 : offset % 4096 + len(data)] = data
    files.write(path, bytes(content))


def killed(files: SimulatedFiles, *sent: bytes) -> tuple[SimulatedFiles, list[int]]:
    """Put bodies and kill the store; return its files and where the records begin."""
    store = open_store(files)
    offsets = [store.put(message(body)).physical_offset for body in sent]
    return files.process_crash_image(), offsets


def test_the_log_ends_before_a_body_that_does_not_match_its_checksum(
    files: SimulatedFiles,
) -> None:
    image, offsets = killed(files, b"one", b"two")
    damage(image, offsets[1] + 88, b"TWO")
    store = open_store(image)
    report = store.recovery_report
    assert bodies(store) == [b"one"]
    assert report.log_end == offsets[1]
    assert "checksum" in report.stop_reason
    assert report.bytes_truncated == 4096 - offsets[1]
    assert store.put(message(b"new")).physical_offset == offsets[1]
    store.close()
    assert bodies(open_store(image)) == [b"one", b"new"], "what was cut off does not come back"


def test_checksums_are_looked_at_only_if_wanted(files: SimulatedFiles) -> None:
    image, offsets = killed(files, b"one", b"two")
    damage(image, offsets[1] + 88, b"TWO")
    assert bodies(open_store(image, check_crc_on_recover=False)) == [b"one", b"TWO"]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\0\0\0\5"),
        (4, b"\1\2\3\4"),
        (28, b"\0\0\0\0\0\0\0\1"),
        (84, b"\x7f\xff\xff\xff"),
    ],
    ids=["size", "magic", "offset", "body size"],
)
def test_the_log_ends_before_a_record_that_contradicts_itself(
    files: SimulatedFiles, at: int, data: bytes
) -> None:
    image, offsets = killed(files, b"one", b"two")
    damage(image, offsets[1] + at, data)
    store = open_store(image)
    assert (bodies(store), store.recovery_report.log_end) == ([b"one"], offsets[1])


def test_files_behind_the_end_are_removed(files: SimulatedFiles) -> None:
    image, offsets = killed(files, *[bytes(1500)] * 6)
    assert offsets[2] == 4096
    for offset in offsets[1:]:
        damage(image, offset + 100, b"damage")
    store = open_store(image)
    assert store.recovery_report.log_files_removed == [f"{4096:020d}", f"{8192:020d}"]
    assert [entry.name for entry in image.list(LOG)] == [f"{0:020d}"]
    assert store.put(message(bytes(1500))).queue_offset == 1


def test_a_file_made_ahead_and_never_used_is_removed(files: SimulatedFiles) -> None:
    image, _ = killed(files, b"one")
    image.create(LOG / f"{4096:020d}", 4096).close()
    store = open_store(image)
    assert bodies(store) == [b"one"]
    assert store.recovery_report.log_files_removed == [f"{4096:020d}"]
    assert [store.put(message(bytes(2900))).ok for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_log_that_is_gone_is_told_or_refused(files: SimulatedFiles, cleanly: bool) -> None:
    files = filled(files, cleanly=cleanly)
    remove_tree(files, LOG)
    with pytest.raises(StoreLoadError, match="the log ends at 0, but was flushed up to"):
        open_store(files, damaged_log_policy=DamagedLogPolicy.REFUSE)
    report = open_store(files).recovery_report
    assert (report.log_end, report.units_cut) == (0, 30)
    assert [text.split()[0] for text in report.lost_ranges] == ["the", "records"]


def test_a_blank_that_ends_the_last_file_is_no_loss(files: SimulatedFiles) -> None:
    """A kill may come between the blank and the file behind it."""
    image = filled(files, cleanly=False, count=100)
    others = [entry.name for entry in image.list(LOG)][1:]
    assert others
    for name in others:
        image.remove(LOG / name)
    page = decode_checkpoint(image.read(CHECKPOINT))
    assert page.marks is not None
    marks = page.marks._replace(log_flushed=4096, dispatched=0)
    image.write(CHECKPOINT, encode_checkpoint(replace(page, marks=marks)))
    remove_tree(image, QUEUES)
    report = open_store(image).recovery_report
    assert report.log_end < 4096
    assert report.lost_ranges == []


def test_a_unit_of_garbage_tells_of_no_lost_record(files: SimulatedFiles) -> None:
    files = filled(files, cleanly=True)
    queue = QUEUES / "T" / "0"
    path = queue / files.list(queue)[0].name
    data = bytearray(files.read(path))
    data[10 * 20 : 11 * 20] = b"garbage " * 2 + b"unit"
    files.write(path, bytes(data))
    store = open_store(files)
    assert store.recovery_report.lost_ranges == []
    assert_whole(store)


def test_a_blank_that_lies_about_its_size_ends_the_log(files: SimulatedFiles) -> None:
    image, offsets = killed(files, bytes(2900))
    damage(image, offsets[0] + 2900 + 92, encode_blank(77))
    store = open_store(image)
    assert len(bodies(store)) == 1


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("cleanly", [True, False])
def test_a_last_file_that_is_lost_is_told(
    files: SimulatedFiles, caplog: pytest.LogCaptureFixture, cleanly: bool, marked: bool
) -> None:
    """Java puts the end where the blank of the previous file began."""
    files = filled(files, cleanly=cleanly, count=100)
    if not marked:
        void_marks(files)
    names = [entry.name for entry in files.list(LOG)]
    files.remove(LOG / names[-1])
    store = open_store(files)
    report = store.recovery_report
    assert [text.split()[0] for text in report.lost_ranges] == [*["the"] * marked, "records"]
    assert caplog.text.count("the end of the log is missing") == len(report.lost_ranges)
    assert report.log_end <= int(names[-1])
    served = sum(len(bodies(store, "T", queue_id)) for queue_id in range(3))
    assert 60 < served < 100
    assert store.put(message(b"new", queue_id=0)).ok
    assert bodies(store)[-1] == b"new"


def test_records_that_are_lost_in_between_leave_blank_units(files: SimulatedFiles) -> None:
    """A damaged record in the middle of the log, found when a queue must be made again."""
    files = filled(files, cleanly=True)
    store = open_store(files)
    unit = store.queues.get_or_make("T", 1).unit_at(4)
    assert unit is not None
    store.close()
    # The record claims to belong to another queue; no checksum covers that.
    damage(files, unit[0] + 12, (7).to_bytes(4, "big"))
    remove_tree(files, QUEUES)
    again = open_store(files)
    assert [record.queue_offset for record in records(again, "T", 1)] == [0, 1, 2, 3, *range(5, 10)]
    assert any("no records for units 4 to 4" in text for text in again.recovery_report.problems)


@pytest.mark.parametrize("name", ["//", "..", "a/"])
def test_a_record_whose_topic_is_damaged_is_in_no_queue(files: SimulatedFiles, name: str) -> None:
    store = open_store(files)
    for topic in ("TT", "XX", "TT"):
        store.put(message(topic=topic))
    image = files.process_crash_image()
    content = image.read(LOG / f"{0:020d}")
    damage(image, content.index(b"XX"), name.encode())
    again = open_store(image)
    assert len(bodies(again, "TT")) == 2
    assert any("is no topic" in text for text in again.recovery_report.problems)


def test_a_topic_that_was_deleted_and_made_anew_starts_at_zero(files: SimulatedFiles) -> None:
    store = open_store(files)
    for _ in range(5):
        store.put(message(b"old"))
    store.dispatch()
    store.checkpoint()
    store.clean_unused_topics({"other"})
    for _ in range(3):
        store.put(message(b"new"))
    image = files.process_crash_image()
    store.close()
    for found in (image, files):
        again = open_store(found)
        assert bodies(again) == [b"new"] * 3
        assert again.put(message()).queue_offset == 3


# -- torn records ----------------------------------------------------------------------------


@pytest.mark.parametrize("kept", range(0, 208, 8))
def test_a_record_whose_last_words_are_missing_is_torn(files: SimulatedFiles, kept: int) -> None:
    """The checksum covers the body alone: torn properties must be found otherwise."""
    store = open_store(files)
    store.put(message(b"whole", properties={"KEYS": "a"}))
    start = store.put(message(b"torn", properties={"p": "x" * 120})).physical_offset
    size = store.log.end_offset - start
    image = files.process_crash_image()
    aligned = -(-start // 8) * 8 + kept
    assert aligned < start + size
    damage(image, aligned, bytes(start + size - aligned))
    again = open_store(image)
    assert bodies(again) == [b"whole"]
    assert again.recovery_report.log_end == start


def test_a_missing_sector_in_the_properties_is_found(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(b"one"))
    start = store.put(message(properties={"p": "x" * 2000})).physical_offset
    image = files.process_crash_image()
    sector = (start + 700) // 512 * 512
    damage(image, sector, bytes(512))
    assert bodies(open_store(image)) == [b"one"]


def test_a_zero_byte_in_a_property_is_no_sign_of_a_torn_write(files: SimulatedFiles) -> None:
    store = open_store(files)
    store.put(message(b"one", properties={"p": "a\0b\0\0\0\0c"}))
    store.put(message(b"two", properties={"p": "ends with zero\0"}))
    store.put(message(b"three"))
    assert bodies(open_store(files.process_crash_image())) == [b"one", b"two", b"three"]


def test_only_what_was_not_flushed_can_be_torn(files: SimulatedFiles) -> None:
    store = sync_store(files)
    store.put(message(b"odd", properties={"p": "\0" * 64}))
    store.put(message(b"next"))
    store.checkpoint()  # flushed, but nothing of it dispatched yet
    assert bodies(sync_store(files.process_crash_image())) == [b"odd", b"next"]


def test_a_torn_record_is_told_from_a_whole_one() -> None:
    store = open_store()
    result = store.put(message(properties={"p": "x" * 20}))
    file = store.log.files.first
    assert file is not None
    record = check_record(file.view, 0, file.size, check_crc=True, expected_offset=0)
    assert not is_torn(record, file.view, 0)  # type: ignore[arg-type]
    file.view[result.size - result.size % 8 - 8 : result.size] = bytes(result.size % 8 + 8)
    torn = check_record(file.view, 0, file.size, check_crc=True, expected_offset=0)
    assert is_torn(torn, file.view, 0)  # type: ignore[arg-type]


# -- what recovery leaves --------------------------------------------------------------------


def test_what_recovery_serves_is_on_the_disk(files: SimulatedFiles) -> None:
    image, _ = killed(files, b"one", b"two")
    assert bodies(open_store(image)) == [b"one", b"two"]
    dark = next(image.crash_images(Random(0), 0))
    assert bodies(open_store(dark)) == [b"one", b"two"]


def test_a_second_start_finds_nothing_to_do(files: SimulatedFiles) -> None:
    image, _ = killed(files, *[b"x"] * 50)
    open_store(image).close()
    report = open_store(image).recovery_report
    assert (report.clean_exit, report.records_scanned, report.units_cut) == (True, 0, 0)


def test_a_batch_of_which_a_part_is_torn_is_kept_up_to_there(files: SimulatedFiles) -> None:
    store = open_store(files)
    result = store.put_batch(batch(b"one", b"two", b"three"))
    image = files.process_crash_image()
    damage(image, result.record_offsets[2] + 88, b"THREE")
    assert bodies(open_store(image)) == [b"one", b"two"]


def test_the_report_keeps_a_hundred_problems_at_most(files: SimulatedFiles) -> None:
    report = open_store(files).recovery_report
    for number in range(150):
        report.add_problem(f"problem {number}")
    assert (len(report.problems), report.problem_count) == (100, 150)
    assert "50 more problems" in report.summary


@pytest.mark.parametrize("cleanly", [False, True])
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_queue_beside_the_extension_of_another_life_gets_its_own(
    cleanly: bool, is_gone: bool
) -> None:
    def life(tag: str) -> SimulatedFiles:
        files = new_files()
        store = open_store(files, enable_consume_queue_ext=True)
        for number in range(12):
            store.put(message(b"%d" % number, properties={"TAGS": f"{tag}{number}"}))
        return ended(store, files, cleanly=cleanly)

    extension = ROOT / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    files, other = life("one"), life("two")
    if is_gone:
        files.remove(extension)
    else:
        files.write(extension, other.read(extension))
    store = open_store(files, enable_consume_queue_ext=True)
    assert any("extension" in text for text in store.recovery_report.problems)
    queue = store.queues.get("T", 0)
    assert queue is not None
    assert queue.max_offset == 12
    for number in range(12):
        unit = queue.unit_at(number)
        assert unit is not None
        found = queue.resolve(unit[2])
        assert found is not None
        assert found.tags_code == tags_code(f"one{number}")
    again = open_store(files.process_crash_image(), enable_consume_queue_ext=True)
    assert not again.recovery_report.problems


# -- queues that the checkpoint does not know ------------------------------------------------


def killed_before_marks(root: Path) -> Path:
    """Return a store with a message in each of three queues, of which the checkpoint has none."""
    with closing(MessageStore.open(small_config(root / "live"), background=False)) as store:
        for queue_id in range(3):
            store.put(message(b"%d" % queue_id, queue_id=queue_id))
        store.dispatch()
        return Path(shutil.copytree(root / "live", root / "killed"))


def queue_files(root: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_ino for path in root.glob("consumequeue/*/*/0*")}


def test_the_file_of_a_queue_that_is_made_anew_is_kept(tmp_path: Path) -> None:
    root = killed_before_marks(tmp_path)
    before = queue_files(root)
    assert len(before) == 3
    with closing(MessageStore.open(small_config(root), background=False)) as store:
        assert (store.recovery_report.units_cut, store.recovery_report.units_rebuilt) == (3, 3)
        assert [bodies(store, "T", queue_id) for queue_id in range(3)] == [[b"0"], [b"1"], [b"2"]]
        assert queue_files(root) == before


def test_a_queue_whose_messages_are_all_lost_keeps_no_file(tmp_path: Path) -> None:
    root = killed_before_marks(tmp_path)
    (log,) = root.glob("commitlog/0*")
    content = log.read_bytes()
    first = check_record(content, 0, len(content), check_crc=True, expected_offset=0)
    last = 2 * first.size
    log.write_bytes(content[:last] + bytes(len(content) - last))
    with closing(MessageStore.open(small_config(root), background=False)) as store:
        assert queue_files(root).keys() == {"0", "1"}
        store.put(message(b"again", queue_id=2))
        assert bodies(store, "T", 2) == [b"again"]
