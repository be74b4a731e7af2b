"""Messages that name a time are delivered then: years ahead, across restarts, unless cancelled."""

from typing import Final

import pytest

from flintmq.format.delivery_time import DELAY_CLASS_COUNT, DELAY_MAX_S, delay_class
from flintmq.model.message import MessageBatch
from flintmq.model.property_names import (
    DELAY,
    DELIVER_AT,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from flintmq.model.topics import WAITING_TOPIC
from flintmq.store.appending.waiting_put import CANCELLED_ID_LENGTH_MAX
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.errors import StoreLoadError
from flintmq.store.files.state_file import StateFileError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutStatus
from flintmq.store.running_flags import RunningFlag
from flintmq.store.upkeep import waiting_delivery
from flintmq.testing import ROOT, ManualClock, SimulatedFiles
from tests.kits.store.waiting_store import (
    HOST,
    TOPIC,
    cancel,
    deliver_all,
    delivered,
    message_to,
    open_waiting,
    put_at,
    put_with,
    stored_records,
)

STATE: Final = ROOT / "config" / "deliverAt.json"
HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files(clock: ManualClock) -> SimulatedFiles:
    return SimulatedFiles(clock=clock)


# -- when ------------------------------------------------------------------------------------


def test_nothing_waits_in_an_empty_store(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_waiting(files, clock) as store:
        assert store.waiting.next_due_ms() is None
        assert store.waiting.step() == 0
        assert store.waiting.waiting_count == 0
    assert not files.exists(STATE)


@pytest.mark.parametrize(
    ("name", "value", "delay_ms"),
    [
        (DELIVER_AT, None, 1_234),
        (TIMER_DELIVER_MS, None, 5 * DAY),
        (TIMER_DELAY_SEC, "90", 90_000),
        (TIMER_DELAY_MS, "7", 7),
    ],
)
def test_each_property_delivers_at_its_very_millisecond(
    files: SimulatedFiles, clock: ManualClock, name: str, value: str | None, delay_ms: int
) -> None:
    due = clock.now_ms() + delay_ms
    with open_waiting(files, clock) as store:
        put_with(store, "one", **{name: value or str(due), "mine": "kept"})
        deliver_all(store)
        assert store.waiting.waiting_count == 1
        assert store.waiting.next_due_ms() == due
        clock.set(due - 1)
        deliver_all(store)
        assert delivered(store) == []
        clock.set(due)
        deliver_all(store)
        (record,) = stored_records(store)
        assert record.store_timestamp == due
        assert record.properties[DELIVER_AT] == record.properties[TIMER_OUT_MS] == str(due)
        assert record.properties["mine"] == "kept"
        assert store.waiting.waiting_count == 0
        assert store.waiting.next_due_ms() is None


def test_what_is_due_already_does_not_wait(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_waiting(files, clock) as store:
        put_at(store, "past", clock.now_ms())
        assert delivered(store) == ["past"]


def test_a_delay_level_counts_before_a_time(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_waiting(files, clock) as store:
        put_with(store, "level", **{DELAY: "1", TIMER_DELAY_SEC: "3600"})
        clock.advance(1000)
        store.schedule.deliver_due()
        assert delivered(store) == ["level"]
        assert store.waiting.waiting_count == 0


@pytest.mark.parametrize(
    "properties",
    [
        {DELIVER_AT: "soon"},
        {DELIVER_AT: "-1"},
        {TIMER_DELAY_MS: "1.5"},
        {TIMER_DELAY_SEC: "9" * 20},
        {TIMER_DELAY_SEC: str(DELAY_MAX_S)},
        {DELIVER_AT: "٣"},
    ],
)
def test_a_time_that_is_none_or_too_far_ahead_is_refused(
    files: SimulatedFiles, clock: ManualClock, properties: dict[str, str]
) -> None:
    with open_waiting(files, clock) as store:
        assert put_with(store, "bad", **properties).status is PutStatus.MESSAGE_ILLEGAL
        assert store.log.end_offset == 0


def test_more_messages_than_fit_the_window_come_in_the_order_of_their_times(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    start = clock.now_ms()
    delays = [(number * 7919) % 1009 + 1 for number in range(120)]
    with open_waiting(files, clock) as store:
        for number, delay in enumerate(delays):
            put_at(store, f"{delay} {number}", start + delay)
        clock.advance(500)
        deliver_all(store)
        assert [int(one.split()[0]) for one in delivered(store)] == sorted(
            delay for delay in delays if delay <= 500
        )
        clock.advance(600)
        deliver_all(store)
        assert [int(one.split()[0]) for one in delivered(store)] == sorted(delays)


def test_delay_classes_cover_every_delay_and_bound_how_long_a_queue_waits() -> None:
    assert delay_class(999) == 0
    assert delay_class(DELAY_MAX_S * 1000) == DELAY_CLASS_COUNT - 1
    for number in range(1, DELAY_CLASS_COUNT):
        assert delay_class(4 ** (number - 1) * 1000) == number
        assert delay_class(4**number * 1000 - 1) == number


def test_a_clock_that_was_set_back_loses_nothing(files: SimulatedFiles, clock: ManualClock) -> None:
    start = clock.now_ms()
    with open_waiting(files, clock) as store:
        put_at(store, "first", start + 1000)
        clock.advance(5000)
        deliver_all(store)
        clock.set(start - HOUR)
        put_at(store, "second", start - HOUR + 10)
        deliver_all(store)
    with open_waiting(files, clock) as store:
        clock.set(start + 1001)
        deliver_all(store)
        assert delivered(store) == ["first", "second"]


# -- restarts --------------------------------------------------------------------------------


def test_a_message_waits_for_years_and_clean_restarts_repeat_nothing(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    due = clock.now_ms() + 9 * YEAR
    with open_waiting(files, clock) as store:
        put_at(store, "far", due)
        put_at(store, "near", clock.now_ms() + 10)
    for _ in range(3):
        clock.advance(3 * YEAR - 1)
        with open_waiting(files, clock) as store:
            deliver_all(store)
            assert delivered(store) == ["near"]
            assert store.waiting.waiting_count == 1
    clock.set(due)
    for _ in range(2):
        with open_waiting(files, clock) as store:
            deliver_all(store)
            assert delivered(store) == ["near", "far"]


def test_a_damaged_state_is_no_reason_to_deliver_everything_again(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_waiting(files, clock) as store:
        put_at(store, "one", clock.now_ms() + 1)
        clock.advance(1)
        deliver_all(store)
    files.write(STATE, b"{torn")
    with pytest.raises(StateFileError):
        open_waiting(files, clock)
    files.write(STATE, b'{"queues":{77:{"first":0,"due":1,"offset":0}},"logEnd":0}')
    with pytest.raises(StoreLoadError):
        open_waiting(files, clock)


def test_a_state_ahead_of_its_log_is_not_believed(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_waiting(files, clock) as store:
        put_at(store, "one", clock.now_ms() + 1)
    state = b'{"logEnd":99999,"queues":{0:{"first":1,"due":9999999999999,"offset":0}}}'
    files.make_directory(STATE.parent)
    files.write(STATE, state)
    clock.advance(1)
    with open_waiting(files, clock) as store:
        deliver_all(store)
        assert delivered(store) == ["one"]


def test_units_that_a_java_broker_has_made_are_read_by_their_records(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_waiting(files, clock) as store:
        put_with(store, "one", **{DELIVER_AT: str(clock.now_ms() + 500), "TAGS": "x"})
        store.dispatch()
        queue = store.queues.get(WAITING_TOPIC, 0)
        assert queue is not None
        assert queue.files.last is not None
        # The hash of the tag, as for any other topic.
        queue.files.last.view[12:20] = (ord("x")).to_bytes(8)
        deliver_all(store)
        assert delivered(store) == []
        clock.advance(500)
        deliver_all(store)
        assert delivered(store) == ["one"]


def test_a_queue_extension_holds_the_time(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_waiting(files, clock, enable_consume_queue_ext=True) as store:
        put_at(store, "one", clock.now_ms() + 500)
        clock.advance(499)
        deliver_all(store)
        assert delivered(store) == []
        clock.advance(1)
        deliver_all(store)
        assert delivered(store) == ["one"]


def test_with_synchronous_flush_a_message_not_on_the_disk_yet_is_not_overtaken_and_lost(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_waiting(files, clock, flush_mode=FlushMode.SYNC) as store:
        put_at(store, "later", clock.now_ms() + 100)
        store.flush()
        deliver_all(store)
        put_at(store, "sooner", clock.now_ms() + 50)
        clock.advance(200)
        deliver_all(store)  # The disk does not have the sooner one yet.
        assert store.waiting.delivered_count == 0
        store.flush()
        deliver_all(store)
        store.flush()
        assert delivered(store) == ["sooner", "later"]


# -- cancelling ------------------------------------------------------------------------------


def test_a_cancelled_message_is_not_delivered(files: SimulatedFiles, clock: ManualClock) -> None:
    start = clock.now_ms()
    with open_waiting(files, clock) as store:
        for number in range(20):
            put_at(store, f"m{number}", start + 100)
        assert cancel(store, "m7", start + 100).ok
        assert cancel(store, "m11", start + 100).ok
        assert cancel(store, "unknown", start + 100).ok
        assert cancel(store, "m3", start + 100, topic="other").ok
        clock.advance(99)
        store.waiting.step(1)
    with open_waiting(files, clock) as store:
        clock.advance(1)
        deliver_all(store)
        assert sorted(delivered(store)) == sorted(
            f"m{number}" for number in range(20) if number not in (7, 11)
        )
        assert store.waiting.cancelled_count == 2
        assert store.waiting.waiting_count == 0


def test_what_is_cancelled_takes_a_bounded_amount_of_memory(
    files: SimulatedFiles, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_delivery, "CANCELLED_COUNT_MAX", 5)
    start = clock.now_ms()
    with open_waiting(files, clock) as store:
        result = cancel(store, "i" * (CANCELLED_ID_LENGTH_MAX + 1), start + 100)
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        assert cancel(store, "i" * CANCELLED_ID_LENGTH_MAX, start + 50).ok
        for later in (100, 200):
            for number in range(8):
                put_at(store, f"m{later + number}", start + later)
                assert cancel(store, f"m{later + number}", start + later).ok
        clock.advance(300)
        deliver_all(store)
        # Five of each time: those of an earlier time do not count any more.
        assert sorted(delivered(store)) == ["m105", "m106", "m107", "m205", "m206", "m207"]
        assert store.waiting.skipped_count == 6


def test_it_can_be_too_late_to_cancel(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_waiting(files, clock) as store:
        result = cancel(store, "gone", clock.now_ms() + 1)
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        assert "too late to cancel" in result.reason


# -- what cannot be delivered ----------------------------------------------------------------


def test_a_record_without_a_topic_is_passed_over(files: SimulatedFiles, clock: ManualClock) -> None:
    due = clock.now_ms() + 100
    with open_waiting(files, clock) as store:
        odd = message_to(WAITING_TOPIC, b"?", {TIMER_OUT_MS: str(due)}, queue_id=0)
        assert store.put(odd).ok
        put_at(store, "good", due + 1)
        clock.advance(200)
        deliver_all(store)
        assert delivered(store) == ["good"]
        assert store.waiting.skipped_count == 1


def test_a_put_that_is_refused_is_tried_again(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_waiting(files, clock) as store:
        put_at(store, "one", clock.now_ms() + 10)
        clock.advance(10)
        store.flags.set(RunningFlag.DISK_FULL, "full")
        deliver_all(store)
        assert store.waiting.next_due_ms() == clock.now_ms() + 100
        store.flags.clear(RunningFlag.DISK_FULL)
        deliver_all(store)
        assert delivered(store) == []
        clock.advance(100)
        deliver_all(store)
        assert delivered(store) == ["one"]


def test_a_batch_has_no_time(files: SimulatedFiles, clock: ManualClock) -> None:
    with open_waiting(files, clock) as store:
        batch = MessageBatch(
            topic=TOPIC,
            queue_id=0,
            body=b"",
            properties={DELIVER_AT: "1800000000000"},
            born_host=HOST,
            store_host=HOST,
        )
        result = store.put_batch(batch)
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        assert "time of delivery" in result.reason


# -- retention -------------------------------------------------------------------------------


def run_retention(store: MessageStore, clock: ManualClock) -> None:
    """Let a day pass, with all that is done beside puts and reads."""
    for _ in range(24):
        clock.advance(HOUR)
        deliver_all(store)
        store.dispatch()
        store.checkpoint()
        for _ in range(3):
            store.retention.request_manual_delete()
            clock.advance(10_000)
            store.retention.step(clock.now_ms())
            deliver_all(store)
            store.waiting.progress.persist()


def fill_file(store: MessageStore) -> None:
    for number in range(20):
        assert store.put(message_to("noise", bytes(1000) + b"%d" % number, {})).ok


def test_what_waits_longer_than_log_files_are_kept_is_put_again_and_not_lost(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    start = clock.now_ms()
    with open_waiting(files, clock) as store:
        for number in range(10):
            put_at(store, f"far {number}", start + 10 * DAY + number)
        put_at(store, "cancelled", start + 10 * DAY)
        cancel(store, "cancelled", start + 10 * DAY)
        fill_file(store)
        for _ in range(9):
            run_retention(store, clock)
            fill_file(store)
        assert store.log.min_offset > 16_384, "the first file is gone"
        assert store.waiting.rolled_count >= 20
        assert store.waiting.waiting_count == 12
        run_retention(store, clock)
    with open_waiting(files, clock) as store:
        clock.set(start + 10 * DAY + 100)
        deliver_all(store)
        assert delivered(store) == [f"far {number}" for number in range(10)]
        assert {record.properties[REAL_TOPIC] for record in stored_records(store)} == {TOPIC}


def test_a_log_file_is_kept_while_messages_wait_in_it(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_waiting(files, clock, file_reserved_hours=0) as store:
        put_at(store, "far", clock.now_ms() + DAY)
        fill_file(store)
        store.dispatch()
        store.checkpoint()
        store.retention.request_manual_delete()
        clock.advance(60_000)
        store.retention.step(clock.now_ms())
        assert store.log.min_offset == 0
        deliver_all(store)  # It is put again, and then the file may go.
        store.waiting.progress.persist()
        store.checkpoint()
        clock.advance(60_000)
        store.retention.step(clock.now_ms())
        assert store.log.min_offset == 16_384
        clock.advance(DAY)
        deliver_all(store)
        assert delivered(store) == ["far"]


# -- a slave ---------------------------------------------------------------------------------


def test_a_slave_delivers_nothing_and_follows_its_master_when_its_log_is_as_far(
    files: SimulatedFiles, clock: ManualClock
) -> None:
    with open_waiting(files, clock) as store:
        put_at(store, "one", clock.now_ms() + 5)
        put_at(store, "two", clock.now_ms() + 5000)
        clock.advance(5)
        deliver_all(store)
        store.waiting.progress.persist()
        told = store.waiting.progress.saved_json()
        assert told is not None
    files.remove(STATE)
    with open_waiting(files, clock, broker_role=BrokerRole.SLAVE) as slave:
        assert slave.waiting.next_due_ms() is None
        assert slave.waiting.step() == 0
        assert not slave.waiting.progress.follow({**told, "logEnd": slave.log.end_offset + 1})
        assert slave.waiting.progress.follow(told)
        assert not slave.waiting.progress.follow(told)
    with open_waiting(files, clock) as store:
        clock.advance(5000)
        deliver_all(store)
        assert delivered(store) == ["one", "two"]
