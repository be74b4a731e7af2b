import threading
from typing import Any

import pytest

from flintmq.format.message_id import encode_offset_id
from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.record import decode_record
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult, PutStatus
from flintmq.store.running_flags import RunningFlag
from flintmq.testing import Fault, ManualClock, SimulatedFiles
from tests.kits.store.spec_vectors import BATCH_BODY, R1, V6_BORN, V6_STORE, put_vectors
from tests.kits.store.store_kit import (
    LOG,
    STORE_HOST,
    STORE_MS,
    batch,
    bodies,
    log_bytes,
    message,
    new_files,
    open_store,
    records,
    sync_store,
    turn,
)


@pytest.fixture
def store() -> MessageStore:
    return open_store()


def refused(result: PutResult, status: PutStatus, reason: str) -> None:
    """Assert that a put was refused for that reason, and says nothing else."""
    assert result.status is status, result
    assert reason in result.reason
    assert not result.ok
    assert not result.status.stored
    assert (result.physical_offset, result.queue_offset) == (-1, -1)


# -- the test vectors of the specification ---------------------------------------------------

R2 = (
    "00000087daa320a7770659160000000300000000000000000000000100000000000000b0000000300000018bcfe5"
    "687b20010db80000000000000000000000010000d4310000018bcfe569c820010db8000000000000000000000002"
    "00002a9f00000000000000000000000000000002763609546f706963546573740009544147530154616742"
)
R3 = (
    "00000086daa320a747cc1be0000000030000000000000000000000020000000000000137000000000000018bcfe5"
    "687bc0a8010a0000d4310000018bcfe569c80a00000100002a9f0000000000000000000000000000000262310954"
    "6f70696354657374002054414753015461674102434c55535445520144656661756c74436c7573746572"
)
R4 = (
    "0000007cdaa320a75ec54a5a0000000300000007000000000000000300000000000001bd000000000000018bcfe5"
    "687bc0a8010a0000d4310000018bcfe569c80a00000100002a9f0000000000000000000000000000000262320954"
    "6f706963546573740016434c55535445520144656661756c74436c7573746572"
)


def test_the_wire_form_of_a_batch_is_that_of_the_specification() -> None:
    items = [BatchItem(0, b"b1", encode_properties({"TAGS": "TagA"})), BatchItem(7, b"b2", b"")]
    assert encode_batch(items).hex() == BATCH_BODY


def test_records_are_those_of_the_reference_store_byte_for_byte(store: MessageStore) -> None:
    results = put_vectors(store)
    assert [result.physical_offset for result in results] == [0, 176, 311, 569]
    assert [result.queue_offset for result in results] == [0, 1, 2, 0]
    assert log_bytes(store, 0, 176).hex() == R1
    assert log_bytes(store, 176, 135).hex() == R2
    assert log_bytes(store, 311, 134).hex() == R3
    assert log_bytes(store, 445, 124).hex() == R4
    assert results[0].message_id == "0A00000100002A9F0000000000000000"
    assert results[2].message_id == (
        "0A00000100002A9F0000000000000137,0A00000100002A9F00000000000001BD"
    )
    assert (results[2].message_count, results[2].size) == (2, 258)


def test_a_delayed_message_goes_to_the_queue_of_its_level(store: MessageStore) -> None:
    delayed = put_vectors(store)[3]
    assert (delayed.physical_offset, delayed.size) == (569, 166)
    record = store.look(569)
    assert record is not None
    assert (record.topic, record.queue_id, bytes(record.body)) == (
        "SCHEDULE_TOPIC_XXXX",
        2,
        b"delayed",
    )
    assert record.properties == {
        "DELAY": "3",
        "TAGS": "TagD",
        "REAL_TOPIC": "TopicTest",
        "REAL_QID": "1",
    }


def test_a_blank_closes_a_file_that_has_no_room_for_the_next_record(store: MessageStore) -> None:
    """Two records of 1598 bytes, then one that does not fit: the vector of the specification."""
    body = bytes(1598 - 91 - 1)
    for _ in range(3):
        assert store.put(message(body)).size == 1598
    assert log_bytes(store, 3196, 8).hex() == "00000384cbd43194"
    assert log_bytes(store, 3204, 892) == bytes(892)
    record = store.look(4096)
    assert record is not None
    assert record.queue_offset == 2


def test_a_record_and_its_blank_may_fill_a_file_to_the_last_byte(store: MessageStore) -> None:
    body = bytes(2044 - 91 - 1)
    assert [store.put(message(body)).physical_offset for _ in range(3)] == [0, 2044, 4096]
    assert log_bytes(store, 4088, 8).hex() == "00000008cbd43194"


# -- what is refused -------------------------------------------------------------------------


def test_a_closed_store_refuses(store: MessageStore) -> None:
    store.close()
    refused(store.put(message()), PutStatus.SERVICE_NOT_AVAILABLE, "closed")
    refused(store.put_batch(batch(b"a")), PutStatus.SERVICE_NOT_AVAILABLE, "closed")


def test_a_slave_refuses() -> None:
    store = open_store(broker_role=BrokerRole.SLAVE)
    refused(store.put(message()), PutStatus.SERVICE_NOT_AVAILABLE, "slave")
    refused(store.put_batch(batch(b"a")), PutStatus.SERVICE_NOT_AVAILABLE, "slave")


@pytest.mark.parametrize("flag", [RunningFlag.NOT_WRITABLE, RunningFlag.DISK_FULL])
def test_a_store_that_is_not_writable_says_why(store: MessageStore, flag: RunningFlag) -> None:
    store.flags.set(flag, "for a test")
    refused(store.put(message()), PutStatus.SERVICE_NOT_AVAILABLE, "for a test")
    refused(store.put_batch(batch(b"a")), PutStatus.SERVICE_NOT_AVAILABLE, "for a test")
    store.flags.clear(flag)
    assert store.put(message()).ok


@pytest.mark.parametrize(
    ("stuck_ms", "status"), [(1001, PutStatus.OS_PAGECACHE_BUSY), (1000, PutStatus.PUT_OK)]
)
def test_a_put_is_refused_while_another_sticks_in_the_page_cache(
    store: MessageStore, stuck_ms: int, status: PutStatus
) -> None:
    assert not store.appender.is_page_cache_busy
    # So it looks from outside while another thread is in the middle of an append.
    store.appender.began_ms = store.clock.now_ms()
    turn(store, stuck_ms)
    assert store.appender.is_page_cache_busy is (status is PutStatus.OS_PAGECACHE_BUSY)
    result = store.put(message())
    assert result.status is status
    assert ("under way" in result.reason) is (status is PutStatus.OS_PAGECACHE_BUSY)


class SlowClock(ManualClock):
    """A clock on which every look takes its time."""

    def now_ms(self) -> int:
        self.advance(2000)
        return super().now_ms()


def test_an_append_under_way_ends_with_the_put_however_that_ends() -> None:
    store = open_store(SimulatedFiles(clock=SlowClock(STORE_MS)))
    assert store.put(message()).ok
    refused(store.put(message(bytes(4000))), PutStatus.MESSAGE_ILLEGAL, "body")
    assert store.appender.began_ms == 0
    assert store.put(message()).ok


def test_a_time_in_the_put_lock_that_nobody_can_believe_is_not_busy(store: MessageStore) -> None:
    store.appender.began_ms = STORE_MS - 10_000_000
    assert not store.appender.is_page_cache_busy
    store.appender.began_ms = STORE_MS - 9_999_999
    assert store.appender.is_page_cache_busy


def test_a_topic_has_at_most_127_characters_and_bytes(store: MessageStore) -> None:
    assert store.put(message(topic="t" * 127)).ok
    refused(store.put(message(topic="t" * 128)), PutStatus.MESSAGE_ILLEGAL, "128 characters")
    refused(store.put(message(topic="ü" * 64)), PutStatus.MESSAGE_ILLEGAL, "128 bytes")
    refused(store.put_batch(batch(b"a", topic="t" * 128)), PutStatus.MESSAGE_ILLEGAL, "128")


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "\udc80"])
def test_a_topic_must_be_able_to_be_a_directory(store: MessageStore, topic: str) -> None:
    refused(store.put(message(topic=topic)), PutStatus.MESSAGE_ILLEGAL, "topic")
    refused(store.put_batch(batch(b"a", topic=topic)), PutStatus.MESSAGE_ILLEGAL, "topic")
    assert store.log.end_offset == 0


@pytest.mark.parametrize("queue_id", [-1, 1 << 31])
def test_a_queue_id_that_no_queue_can_have_is_refused(store: MessageStore, queue_id: int) -> None:
    refused(store.put(message(queue_id=queue_id)), PutStatus.MESSAGE_ILLEGAL, "queue")
    refused(store.put_batch(batch(b"a", queue_id=queue_id)), PutStatus.MESSAGE_ILLEGAL, "queue")
    assert store.log.end_offset == 0


def test_properties_are_counted_in_characters_first_then_in_bytes() -> None:
    store = open_store(commit_log_file_size=1 << 20)
    at_most = {"p": "x" * (32767 - 2)}
    assert store.put(message(properties=at_most)).ok
    refused(
        store.put(message(properties={"p": "x" * (32768 - 2)})),
        PutStatus.MESSAGE_ILLEGAL,
        "32768 characters",
    )
    refused(
        store.put(message(properties={"p": "ü" * 16383})),
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        "32768 bytes",
    )
    # Java counts UTF-16 units: one of these characters is two of them.
    refused(
        store.put(message(properties={"p": "\U0001f600" * 16383 + "x"})),
        PutStatus.MESSAGE_ILLEGAL,
        "32769 characters",
    )


def test_properties_that_a_reader_would_split_elsewhere_are_refused(store: MessageStore) -> None:
    refused(store.put(message(properties={"a\1b": "c"})), PutStatus.MESSAGE_ILLEGAL, "name")
    refused(store.put(message(properties={"a": "b\2c"})), PutStatus.MESSAGE_ILLEGAL, "separator")


def test_the_body_has_a_limit_of_its_own() -> None:
    store = open_store(max_message_size=100)
    assert store.put(message(bytes(100))).ok
    refused(store.put(message(bytes(101))), PutStatus.MESSAGE_ILLEGAL, "body of 101 bytes")


def test_a_record_that_fits_no_file_is_refused_and_wastes_none() -> None:
    """Java answers PUT_OK here, stores nothing and leaves an empty file behind."""
    store = open_store(max_message_size=5000)
    fits = 4096 - 8 - 91 - 1
    refused(store.put(message(bytes(fits + 1))), PutStatus.MESSAGE_ILLEGAL, "4089 bytes")
    assert (store.log.end_offset, len(store.log.files)) == (0, 0)
    assert store.put(message(bytes(fits))).size == 4088


def test_hosts_of_another_size_are_refused(store: MessageStore) -> None:
    refused(store.put(message(born_host=b"12345")), PutStatus.MESSAGE_ILLEGAL, "host")


def test_a_file_that_cannot_be_made_refuses_the_put_and_changes_nothing() -> None:
    files = new_files()
    store = open_store(files)
    files.fail_next("create", Fault.ENOSPC)
    refused(store.put(message()), PutStatus.CREATE_MAPPED_FILE_FAILED, "no room")
    assert store.log.end_offset == 0
    assert store.runtime_info()["putMessageFailedTimes"] == "1"
    assert store.put(message()).queue_offset == 0


def test_a_full_disk_at_a_roll_leaves_the_log_as_it_was() -> None:
    files = new_files()
    store = open_store(files)
    store.put(message(bytes(2900)))
    end = store.log.end_offset
    files.fail_next("create", Fault.ENOSPC)
    refused(store.put(message(bytes(2900))), PutStatus.CREATE_MAPPED_FILE_FAILED, "no room")
    assert store.log.end_offset == end
    assert log_bytes(store, end, 8) == bytes(8)
    small = store.put(message(b"still fits"))
    assert (small.physical_offset, small.queue_offset) == (end, 1)


# -- batches ---------------------------------------------------------------------------------


def test_the_items_of_a_batch_stand_one_after_the_other(store: MessageStore) -> None:
    store.put(message(b"before"))
    result = store.put_batch(batch(b"a", b"b", b"c"))
    assert (result.queue_offset, result.message_count) == (1, 3)
    assert bodies(store) == [b"before", b"a", b"b", b"c"]
    assert [record.queue_offset for record in records(store)] == [0, 1, 2, 3]
    assert len({record.store_timestamp for record in records(store)}) == 1
    assert store.put(message()).queue_offset == 4


def test_a_batch_that_does_not_fit_moves_as_a_whole(store: MessageStore) -> None:
    store.put(message(bytes(2900)))
    end = store.log.end_offset
    result = store.put_batch(batch(bytes(400), bytes(400), bytes(400)))
    assert result.physical_offset == 4096
    assert log_bytes(store, end + 4, 4).hex() == "cbd43194"


@pytest.mark.parametrize("sys_flag", [0x4, 0x8, 0xC])
def test_a_transactional_batch_is_refused(store: MessageStore, sys_flag: int) -> None:
    result = store.put_batch(batch(b"a", sys_flag=sys_flag))
    refused(result, PutStatus.MESSAGE_ILLEGAL, "neither half nor delayed")


def test_a_delayed_batch_is_refused(store: MessageStore) -> None:
    late = batch(b"a", properties_of_batch={"DELAY": "1"})
    refused(store.put_batch(late), PutStatus.MESSAGE_ILLEGAL, "neither half nor delayed")
    assert store.put_batch(batch(b"a", properties_of_batch={"DELAY": "0"})).ok


def test_a_batch_of_nothing_is_refused(store: MessageStore) -> None:
    refused(store.put_batch(batch()), PutStatus.MESSAGE_ILLEGAL, "empty")


def test_a_damaged_batch_stores_none_of_its_items(store: MessageStore) -> None:
    cut = batch(b"a", b"b")
    cut.body = cut.body[:-1]
    refused(store.put_batch(cut), PutStatus.MESSAGE_ILLEGAL, "")
    assert store.log.end_offset == 0


def test_a_batch_body_has_the_limit_of_a_message() -> None:
    store = open_store(max_message_size=100)
    refused(store.put_batch(batch(bytes(90))), PutStatus.MESSAGE_ILLEGAL, "batch of 112 bytes")


def test_a_batch_that_fits_no_file_is_refused() -> None:
    store = open_store(max_message_size=5000)
    many = batch(*[b"x"] * 50)
    refused(store.put_batch(many), PutStatus.MESSAGE_ILLEGAL, "does not fit a log file")
    assert store.log.end_offset == 0


def test_the_properties_of_an_item_and_its_batch_share_one_limit() -> None:
    """Java lets the sum overflow its 16 bits."""
    store = open_store(commit_log_file_size=1 << 20, max_message_size=1 << 19)
    long_value = "x" * 20000
    wide = batch(b"a", properties={"p": long_value}, properties_of_batch={"q": long_value})
    refused(store.put_batch(wide), PutStatus.PROPERTIES_SIZE_EXCEEDED, "40005 bytes")


def test_a_batch_item_whose_delay_is_no_number_is_stored_and_due_at_once(
    store: MessageStore,
) -> None:
    odd = batch(b"a", properties={"DELAY": "soon"}, topic="SCHEDULE_TOPIC_XXXX")
    assert store.put_batch(odd).ok
    store.dispatch()
    queue = store.queues.get("SCHEDULE_TOPIC_XXXX", 0)
    assert queue is not None
    assert queue.unit_at(0) == (0, store.log.end_offset, STORE_MS)


# -- what a message asks for -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [("1", 0), ("18", 17), ("99", 17), ("+3", 2), ("007", 6), ("\uff13", 2), ("1234567890", 17)],
)
def test_a_delay_level_is_capped_at_the_highest(
    store: MessageStore, text: str, queue_id: int
) -> None:
    store.put(message(properties={"DELAY": text}))
    assert len(records(store, "SCHEDULE_TOPIC_XXXX", queue_id)) == 1


@pytest.mark.parametrize("text", ["0", "-1"])
def test_a_level_of_zero_or_less_delays_nothing(store: MessageStore, text: str) -> None:
    store.put(message(properties={"DELAY": text}))
    assert len(records(store)) == 1


@pytest.mark.parametrize("text", ["", " 3", "3s", "1_0", "\U0001d7d1", "2147483648"])
def test_a_delay_that_java_cannot_read_is_refused(store: MessageStore, text: str) -> None:
    refused(store.put(message(properties={"DELAY": text})), PutStatus.MESSAGE_ILLEGAL, "")


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_prepared_and_rolled_back_records_take_no_queue_offset(
    store: MessageStore, sys_flag: int
) -> None:
    store.put(message(b"before"))
    result = store.put(message(b"half", sys_flag=sys_flag, properties={"DELAY": "1"}))
    assert result.queue_offset == 0
    store.put(message(b"after"))
    assert bodies(store) == [b"before", b"after"]
    record = store.look(result.physical_offset)
    assert record is not None
    assert (record.topic, record.queue_offset, record.sys_flag) == ("T", 0, sys_flag)


def test_a_committed_record_is_in_its_queue(store: MessageStore) -> None:
    store.put(message(b"commit", sys_flag=0x8, prepared_transaction_offset=77))
    (record,) = records(store)
    assert (bytes(record.body), record.prepared_transaction_offset) == (b"commit", 77)


@pytest.mark.parametrize(
    ("born_host", "store_host", "flag"),
    [(V6_BORN, STORE_HOST, 0x10), (V6_BORN, V6_STORE, 0x30)],
)
def test_the_host_bits_follow_the_hosts(
    store: MessageStore, born_host: bytes, store_host: bytes, flag: int
) -> None:
    store.put(message(born_host=born_host, store_host=store_host))
    (record,) = records(store)
    assert (record.sys_flag, record.born_host, record.store_host) == (flag, born_host, store_host)


def test_a_host_bit_that_contradicts_the_host_is_put_right(store: MessageStore) -> None:
    assert store.put(message(sys_flag=0x30)).ok
    (record,) = records(store)
    assert record.sys_flag == 0


@pytest.mark.parametrize(
    ("wait", "waits"), [(None, True), ("true", True), ("TRUE", True), ("false", False), ("", False)]
)
def test_a_message_says_whether_it_waits_for_the_disk(wait: str | None, waits: bool) -> None:
    store = sync_store()
    properties = {} if wait is None else {"WAIT": wait}
    assert store.put(message(properties=properties)).wait_for_flush is waits


def test_nobody_waits_for_an_asynchronous_flush(store: MessageStore) -> None:
    assert not store.put(message()).wait_for_flush


def test_the_stored_text_may_differ_from_the_properties_acted_on() -> None:
    store = sync_store()
    result = store.put(message(properties={"WAIT": "false", "A": "b"}, properties_text=b"A\1b"))
    assert not result.wait_for_flush
    store.flush()
    (record,) = records(store)
    assert record.properties_text == b"A\1b"


def test_a_result_can_be_told_from_its_text(store: MessageStore) -> None:
    result = store.put(message())
    assert repr(result) == "PutResult(PUT_OK, physical_offset=0, queue_offset=0, reason='')"
    assert result.message_id == encode_offset_id(STORE_HOST, 0)
    assert (result.store_timestamp, result.end_offset) == (STORE_MS, result.size)


# -- further queues --------------------------------------------------------------------------


@pytest.fixture
def multi() -> MessageStore:
    return open_store(enable_multi_dispatch=True, enable_lmq=True, lmq_queue_count_max=2)


def put_multi(store: MessageStore, names: str, **changes: Any) -> PutResult:
    return store.put(
        message(queue_id=2, properties={"INNER_MULTI_DISPATCH": names, "WAIT": "true"}, **changes)
    )


def test_a_message_may_enter_further_queues(multi: MessageStore) -> None:
    """The vector of the specification: light queues have the id 0, others that of the message."""
    for _ in range(2):
        put_multi(multi, "%LMQ%a,%LMQ%b,plain")
    second = records(multi, "T", 2)[1]
    assert second.properties == {
        "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,plain",
        "INNER_MULTI_QUEUE_OFFSET": "1,1,1",
    }
    for topic, queue_id in (("%LMQ%a", 0), ("%LMQ%b", 0), ("plain", 2)):
        assert [bytes(record.body) for record in records(multi, topic, queue_id)] == [b"body"] * 2


def test_without_the_setting_the_property_means_nothing(store: MessageStore) -> None:
    put_multi(store, "plain")
    assert records(store, "plain", 2) == []
    assert "INNER_MULTI_QUEUE_OFFSET" not in records(store, "T", 2)[0].properties


def test_more_light_queues_than_allowed_are_refused(multi: MessageStore) -> None:
    """Java computes this status and never returns it."""
    put_multi(multi, "%LMQ%a,%LMQ%b")
    multi.dispatch()
    result = put_multi(multi, "%LMQ%c")
    refused(result, PutStatus.LMQ_QUEUE_COUNT_EXCEEDED, "at most 2")
    assert put_multi(multi, "%LMQ%a").ok


@pytest.mark.parametrize("names", ["a/b", "..", "a,,b", "x" * 300])
def test_a_further_queue_needs_a_name_it_can_have(multi: MessageStore, names: str) -> None:
    end = multi.log.end_offset
    refused(put_multi(multi, names), PutStatus.MESSAGE_ILLEGAL, "")
    assert multi.log.end_offset == end


def test_a_refused_message_takes_no_offset_in_its_further_queues(multi: MessageStore) -> None:
    refused(put_multi(multi, "plain", body=bytes(4000)), PutStatus.MESSAGE_ILLEGAL, "")
    put_multi(multi, "plain")
    assert [record.properties["INNER_MULTI_QUEUE_OFFSET"] for record in records(multi, "T", 2)] == [
        "0"
    ]


def test_a_waiting_message_still_waits_when_wait_is_not_stored() -> None:
    store = sync_store(enable_multi_dispatch=True)
    assert put_multi(store, "plain").wait_for_flush


# -- several threads and several directories -------------------------------------------------


def test_puts_of_several_threads_take_turns() -> None:
    store = open_store(commit_log_file_size=1 << 20)

    def put_many() -> None:
        for _ in range(200):
            assert store.put(message()).ok

    threads = [threading.Thread(target=put_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [record.queue_offset for record in records(store)] == list(range(800))


def test_log_files_go_round_their_directories() -> None:
    files = new_files()
    paths = (LOG.parent / "b", LOG.parent / "a")
    with open_store(files, commit_log_paths=paths) as store:
        for _ in range(4):
            store.put(message(bytes(2900)))
    names = {path.name: [entry.name for entry in files.list(path)] for path in paths}
    assert names == {
        "a": [f"{0:020d}", f"{8192:020d}"],
        "b": [f"{4096:020d}", f"{12288:020d}"],
    }
    again = open_store(files, commit_log_paths=paths)
    assert len(records(again)) == 4


def test_a_record_is_what_was_put_in_either_flush_mode() -> None:
    for mode in FlushMode:
        store = open_store(flush_mode=mode)
        result = store.put(message(b"x" * 50, flag=5, reconsume_times=3))
        record = decode_record(log_bytes(store, 0, result.size))
        assert (record.flag, record.reconsume_times, record.crc_ok) == (5, 3, True)
