from collections.abc import Callable
from typing import Any

import pytest

from flintmq.format.java import tags_code
from flintmq.format.stored.consume_queue_ext import ExtUnit
from flintmq.format.stored.record import decode_record
from flintmq.store.config import BrokerRole
from flintmq.store.message_store import MessageStore
from flintmq.store.reading import store_reader as reading
from flintmq.store.reading.message_filter import SCAN_COUNT_MAX
from flintmq.store.results import GetStatus
from flintmq.testing.simulated_region import SimulatedRegion
from tests.kits.store.expiring_store import delete_oldest, fill_log
from tests.kits.store.store_kit import (
    STORE_MS,
    bodies,
    message,
    new_files,
    open_store,
    read,
    records,
    turn,
)


@pytest.fixture
def store() -> MessageStore:
    return open_store()


def put_many(store: MessageStore, count: int, **changes: object) -> None:
    for number in range(count):
        store.put(message(b"%d" % number, **changes))


# -- statuses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (0, GetStatus.FOUND, 3),
        (2, GetStatus.FOUND, 3),
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
        (1 << 60, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_an_offset_is_inside_the_queue_or_corrected(
    store: MessageStore, offset: int, status: GetStatus, following: int
) -> None:
    put_many(store, 3)
    with read(store, offset=offset) as result:
        assert (result.status, result.next_begin_offset) == (status, following)
        assert (result.min_offset, result.max_offset) == (0, 3)


@pytest.mark.parametrize("offset", [-1, 4, 1 << 60])
def test_a_slave_corrects_no_offset_unless_told_to(offset: int) -> None:
    files = new_files()
    with open_store(files) as master:
        put_many(master, 3)
    slave = open_store(files, broker_role=BrokerRole.SLAVE)
    assert read(slave, offset=offset).next_begin_offset == offset
    assert read(slave, queue_id=9, offset=offset).next_begin_offset == offset
    slave.close()
    checking = open_store(files, broker_role=BrokerRole.SLAVE, offset_check_in_slave=True)
    assert read(checking, offset=offset).next_begin_offset != offset


@pytest.mark.parametrize(("topic", "queue_id"), [("nobody", 0), ("T", 9)])
def test_a_queue_that_could_exist_has_no_message(
    store: MessageStore, topic: str, queue_id: int
) -> None:
    put_many(store, 1)
    result = read(store, topic, queue_id, 5)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert store.queues.get(topic, queue_id) is None, "asking makes no queue"


@pytest.mark.parametrize(("topic", "queue_id"), [("a/b", 0), ("T", -1), ("", 0)])
def test_a_queue_that_cannot_exist_is_none(store: MessageStore, topic: str, queue_id: int) -> None:
    assert read(store, topic, queue_id).status is GetStatus.NO_MATCHED_LOGIC_QUEUE


def test_a_read_never_crosses_a_queue_file(store: MessageStore) -> None:
    put_many(store, 25)
    with read(store, offset=15) as result:
        assert result.queue_offsets == [15, 16, 17, 18, 19]
        assert result.next_begin_offset == 20


def test_a_missing_queue_file_is_jumped_over(store: MessageStore) -> None:
    put_many(store, 45)
    store.dispatch()
    queue = store.queues.get("T", 0)
    assert queue is not None
    middle = queue.files.snapshot()[1]
    middle.shutdown(0)  # So it is while somebody reads a file that was deleted.
    result = read(store, offset=25)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 40)


def test_messages_whose_log_file_is_gone_are_passed_over(store: MessageStore) -> None:
    fill_log(store, 10)
    store.dispatch()
    files = store.log.files
    assert files.delete_expired_by_time(0, forced_after_ms=0, immediate=True, limit=1) == 1
    with read(store, offset=0) as result:
        assert result.status is GetStatus.FOUND
        assert result.queue_offsets[0] == 3
    assert files.delete_expired_by_time(0, forced_after_ms=0, immediate=True, limit=9) > 0
    with read(store, offset=0) as result:
        kept = [record.queue_offset for record in records(store)]
        assert result.queue_offsets == kept


def test_a_queue_without_any_record_left_says_so(store: MessageStore) -> None:
    store.put(message(queue_id=5))
    fill_log(store, 6)
    delete_oldest(store)
    result = read(store, queue_id=5, offset=0)
    assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 1)


def test_a_unit_that_leads_to_no_record_is_not_served(store: MessageStore) -> None:
    put_many(store, 3)
    store.dispatch()
    queue = store.queues.get("T", 0)
    assert queue is not None
    assert queue.files.last is not None
    queue.files.last.view[27] += 1  # the physical offset of unit 1
    assert bodies(store) == [b"0", b"2"]


def test_more_light_queues_than_allowed_are_not_read() -> None:
    settings = {"enable_lmq": True, "enable_multi_dispatch": True}
    files = new_files()
    with open_store(files, **settings) as store:
        store.put(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}))
    store = open_store(files, lmq_queue_count_max=1, **settings)
    assert store.get_messages("%LMQ%a", 0, 0, 1) is None
    assert read(store).status is GetStatus.FOUND


# -- how much --------------------------------------------------------------------------------


def test_as_many_messages_as_asked_for(store: MessageStore) -> None:
    put_many(store, 5)
    result = store.get_messages("T", 0, 1, 2)
    assert result is not None
    with result:
        assert [decode_record(view).body for view in result] == [b"1", b"2"]
        assert len(result) == 2
        assert result.next_begin_offset == 3
        assert result.total_size == sum(len(view) for view in result)


def in_memory(**settings: Any) -> MessageStore:
    return open_store(commit_log_file_size=1 << 20, consume_queue_file_size=6000, **settings)


def on_disk(**settings: Any) -> MessageStore:
    """Return a store that takes no record for being in memory any more."""
    return in_memory(memory_ratio=0, **settings)


@pytest.mark.parametrize(
    ("make", "count"), [(in_memory, 32), (on_disk, 8)], ids=["in memory", "on disk"]
)
def test_messages_in_memory_and_on_disk_have_different_limits(
    make: Callable[..., MessageStore], count: int
) -> None:
    store = make()
    put_many(store, 40)
    result = store.get_messages("T", 0, 0, 100)
    assert result is not None
    with result:
        assert len(result) == count
        assert result.suggest_slave is (count == 8)


@pytest.mark.parametrize("make", [in_memory, on_disk], ids=["in memory", "on disk"])
def test_the_kernel_is_asked_for_what_follows_a_read_from_disk(
    make: Callable[..., MessageStore],
) -> None:
    store = make()
    put_many(store, 40)
    with read(store) as result:
        end = result.total_size
    file = store.log.files.find(0)
    assert file is not None
    assert isinstance(file.region, SimulatedRegion)
    assert file.region.advised == ([] if make is in_memory else [(end, reading.READ_AHEAD_SIZE)])


def test_bytes_in_memory_are_limited() -> None:
    store = in_memory(transfer_bytes_in_memory_max=350)
    put_many(store, 5, properties={"p": "x" * 5})  # 100 bytes each
    with read(store) as result:
        assert (len(result), result.total_size) == (3, 3 * 100)


def test_bytes_on_disk_are_limited() -> None:
    store = on_disk(transfer_bytes_on_disk_max=200)
    put_many(store, 5, properties={"p": "x" * 5})
    with read(store) as result:
        assert (len(result), result.total_size) == (2, 200)


def test_one_message_of_any_size_is_always_served() -> None:
    store = in_memory(transfer_bytes_in_memory_max=10, transfer_count_in_memory_max=1)
    put_many(store, 3)
    for offset in range(3):
        with read(store, offset=offset) as result:
            assert result.queue_offsets == [offset]


# -- filters ---------------------------------------------------------------------------------


class Filter:
    """Matches by tag and by body, and notes what it was asked."""

    scan_count_max = SCAN_COUNT_MAX

    def __init__(self, tag: str | None = None, body: bytes | None = None) -> None:
        self._code = None if tag is None else tags_code(tag)
        self._body = body
        self.units: list[tuple[int | None, ExtUnit | None]] = []
        self.record_count = 0

    def matches_unit(self, tags: int | None, ext: ExtUnit | None) -> bool:
        self.units.append((tags, ext))
        return self._code is None or tags is None or tags == self._code

    def matches_record(self, record: memoryview) -> bool:
        self.record_count += 1
        return self._body is None or decode_record(record).body == self._body


def put_tagged(store: MessageStore, tags: str) -> None:
    for number, tag in enumerate(tags):
        store.put(message(b"%d" % number, properties={"TAGS": tag}))


def test_a_filter_sees_the_tags_code_first(store: MessageStore) -> None:
    put_tagged(store, "abab")
    only_b = Filter("b")
    result = store.get_messages("T", 0, 0, 32, only_b)
    assert result is not None
    with result:
        assert result.queue_offsets == [1, 3]
        assert result.next_begin_offset == 4
    assert [tags for tags, _ in only_b.units] == [97, 98, 97, 98]
    assert only_b.record_count == 2, "records are looked at only when the unit does not say no"


def test_a_filter_may_judge_by_the_record(store: MessageStore) -> None:
    put_tagged(store, "aaa")
    result = store.get_messages("T", 0, 0, 32, Filter(body=b"1"))
    assert result is not None
    with result:
        assert (result.queue_offsets, result.next_begin_offset) == ([1], 3)


def test_a_filter_that_nothing_matches_moves_on_all_the_same(store: MessageStore) -> None:
    put_tagged(store, "aaa")
    result = store.get_messages("T", 0, 0, 32, Filter("z"))
    assert result is not None
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 3)


def test_a_filter_is_asked_at_least_about_eight_hundred_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert reading.SCAN_BYTES_MIN == 800 * 20
    monkeypatch.setattr(reading, "SCAN_BYTES_MIN", 5 * 20)
    store = open_store()
    put_tagged(store, "a" * 12)
    for asked, looked_at in ((1, 5), (7, 7)):
        result = store.get_messages("T", 0, 0, asked, Filter("z"))
        assert result is not None
        assert result.next_begin_offset == looked_at


@pytest.mark.parametrize("count_max", [SCAN_COUNT_MAX + 1, 2**31 - 1, 2**63 - 1])
def test_no_read_looks_at_more_units_than_the_limit_however_many_are_wanted(count_max: int) -> None:
    store = open_store(consume_queue_file_size=5000 * 20, commit_log_file_size=1 << 20)
    count = 2 * SCAN_COUNT_MAX + 10
    put_many(store, count, properties={"TAGS": "other"})
    offset, looked_at = 0, []
    while offset < count:
        wanted = Filter(tag="none")
        found = store.get_messages("T", 0, offset, count_max, wanted)
        assert found is not None
        with found as result:
            assert result.status is GetStatus.NO_MATCHED_MESSAGE
            assert result.next_begin_offset == offset + len(wanted.units)
            offset = result.next_begin_offset
        looked_at.append(len(wanted.units))
    assert looked_at == [SCAN_COUNT_MAX, SCAN_COUNT_MAX, 10]


def test_a_filter_gets_what_the_extension_holds() -> None:
    files = new_files()
    store = MessageStore.open(
        open_store(new_files(), enable_consume_queue_ext=True).config,
        files=files,
        clock=files.clock,
        background=False,
        filter_bitmap=lambda topic, properties: b"\1\2",
    )
    put_tagged(store, "ab")
    only_b = Filter("b")
    result = store.get_messages("T", 0, 0, 32, only_b)
    assert result is not None
    with result:
        assert result.queue_offsets == [1]
    assert only_b.units[0] == (97, ExtUnit(97, STORE_MS, b"\1\2"))


def test_a_lost_extension_unit_lets_the_record_decide() -> None:
    store = open_store(enable_consume_queue_ext=True)
    put_tagged(store, "ab")
    store.dispatch()
    queue = store.queues.get("T", 0)
    assert queue is not None
    assert queue.ext is not None
    queue.ext.destroy()
    only_b = Filter("b", body=b"1")
    result = store.get_messages("T", 0, 0, 32, only_b)
    assert result is not None
    with result:
        assert result.queue_offsets == [1]
    assert only_b.units == [(None, None), (None, None)]


# -- results hold their files ----------------------------------------------------------------


def test_a_result_stays_readable_while_its_file_is_deleted(store: MessageStore) -> None:
    fill_log(store, 10)
    with read(store) as result:
        first = bytes(result.messages[0])
        store.checkpoint()
        store.log.files.delete_expired_by_time(0, forced_after_ms=10**9, immediate=True, limit=1)
        assert bytes(result.messages[0]) == first
    result.release()
    assert len(result) == 0


# -- by time ---------------------------------------------------------------------------------


@pytest.fixture
def seconds(store: MessageStore) -> MessageStore:
    """A queue with messages at 0, 1, 2, 3, 4 and 5 seconds."""
    for _ in range(6):
        store.put(message())
        turn(store, 1000)
    return store


@pytest.mark.parametrize(
    ("after_ms", "offset"),
    [
        (-99999, 0),
        (0, 0),
        (499, 0),
        (500, 0),
        (501, 1),
        (1000, 1),
        (2500, 2),
        (5000, 5),
        (99999, 5),
    ],
)
def test_the_message_nearest_to_a_time(seconds: MessageStore, after_ms: int, offset: int) -> None:
    """The vectors of the specification: later than everything is the last message."""
    assert seconds.offset_by_time("T", 0, STORE_MS + after_ms) == offset


def test_of_equal_times_whichever_the_search_meets(store: MessageStore) -> None:
    put_many(store, 5)
    assert store.offset_by_time("T", 0, STORE_MS) == 2


def test_the_search_goes_over_files_whose_pages_are_not_written_back_yet(
    store: MessageStore,
) -> None:
    """The modification time of a mapped file comes late; Java would look into the wrong file."""
    for _ in range(45):
        store.put(message())
        turn(store, 1000)
    for offset in range(45):
        assert store.offset_by_time("T", 0, STORE_MS + 1000 * offset) == offset


def test_the_search_leaves_deleted_messages_out(seconds: MessageStore) -> None:
    fill_log(seconds, 8)
    delete_oldest(seconds)
    first = seconds.min_offset_in_queue("T", 0)
    assert first > 0
    assert seconds.offset_by_time("T", 0, 0) == first


def test_the_time_of_a_unit(seconds: MessageStore) -> None:
    seconds.dispatch()
    reader = seconds.reader
    assert reader.unit_store_time("T", 0, 3) == STORE_MS + 3000
    assert reader.unit_store_time("T", 0, 6) == -1
    assert reader.unit_store_time("T", 9, 0) == -1
    assert reader.is_on_disk("T", 0, 2) is False


# -- by key ----------------------------------------------------------------------------------


def keyed(store: MessageStore, key: str, most: int = 64, **times: int) -> list[bytes]:
    begin, end = times.get("begin", 0), times.get("end", 1 << 60)
    result = store.query("T", key, most, begin, end)
    found = [bytes(decode_record(piece.view).body) for piece in result.slices]
    result.release()
    return found


def test_messages_are_found_by_each_of_their_keys(store: MessageStore) -> None:
    store.put(message(b"one", properties={"KEYS": "a b", "UNIQ_KEY": "u"}))
    store.put(message(b"two", properties={"KEYS": "b  c "}))
    store.put(message(b"prepared", sys_flag=0x4, properties={"KEYS": "p"}))
    store.put(message(b"rolled back", sys_flag=0xC, properties={"KEYS": "p"}))
    assert keyed(store, "a") == keyed(store, "u") == [b"one"]
    assert keyed(store, "b") == [b"one", b"two"]
    assert keyed(store, "c") == [b"two"]
    assert keyed(store, "p") == [b"prepared"]
    assert keyed(store, "") == keyed(store, "z") == []


def test_the_newest_messages_of_a_key_are_found_oldest_first(store: MessageStore) -> None:
    for number in range(60):
        store.put(message(b"%02d" % number, properties={"KEYS": "k"}))
    assert keyed(store, "k", 3) == [b"57", b"58", b"59"]
    assert len(keyed(store, "k")) == 60


def test_a_query_is_capped_by_the_store() -> None:
    store = open_store(query_count_max=2)
    for number in range(5):
        store.put(message(b"%d" % number, properties={"KEYS": "k"}))
    assert keyed(store, "k", 1000) == [b"3", b"4"]


def test_a_query_has_a_time_range_with_both_ends(store: MessageStore) -> None:
    for number in range(5):
        store.put(message(b"%d" % number, properties={"KEYS": "k"}))
        turn(store, 1000)
    assert keyed(store, "k", begin=STORE_MS + 1000, end=STORE_MS + 3000) == [b"1", b"2", b"3"]
    assert keyed(store, "k", begin=STORE_MS + 9000) == []
    assert keyed(store, "k", end=STORE_MS - 1) == []


def test_a_query_tells_how_far_the_index_is(store: MessageStore) -> None:
    store.put(message(properties={"KEYS": "k"}))
    turn(store, 500)
    last = store.put(message(properties={"KEYS": "other"}))
    result = store.query("T", "k", 1, 0, 1 << 60)
    assert result.last_update_timestamp == STORE_MS + 500
    assert result.last_update_offset == last.physical_offset
    result.release()


def test_keys_of_deleted_messages_lead_nowhere(store: MessageStore) -> None:
    store.put(message(b"gone", properties={"KEYS": "k"}))
    fill_log(store, 8)
    store.put(message(b"kept", properties={"KEYS": "k"}))
    delete_oldest(store)
    assert keyed(store, "k") == [b"kept"]


def test_the_memory_of_the_machine_is_known() -> None:
    assert reading.physical_memory() > 1 << 20
