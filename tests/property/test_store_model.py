"""A store against a list in memory, through any order of puts, reads, crashes and deletions."""

from random import Random
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flintmq.format.java import tags_code
from flintmq.format.stored.consume_queue_ext import ExtUnit
from flintmq.format.stored.record import decode_record
from flintmq.store.reading.message_filter import SCAN_COUNT_MAX
from flintmq.store.results import GetStatus
from tests.kits.store.store_ledger import assert_true
from tests.kits.store.store_workload import VARIANTS, Driver

TOPICS: Final = ("T0", "T1", "T2")


class TagFilter:
    """What a consumer of one tag asks for."""

    scan_count_max = SCAN_COUNT_MAX

    def __init__(self, tag: str) -> None:
        self._code = tags_code(tag)

    def matches_unit(self, tags: int | None, ext: ExtUnit | None) -> bool:
        del ext
        return tags is None or tags == self._code

    def matches_record(self, record: memoryview) -> bool:
        return len(record) > 0


class StoreModel(RuleBasedStateMachine):
    """Drives one store on simulated files; the ledger is the list it must agree with."""

    driver: Driver

    @initialize(
        name=st.sampled_from(["async", "sync", "pool", "ext", "multi", "deleting"]),
        seed=st.integers(min_value=0, max_value=2**16),
    )
    def open(self, name: str, seed: int) -> None:
        variant = VARIANTS[name]
        self.driver = Driver(variant, variant.new_files(), seed=seed)
        self.driver.open()

    # -- changing ----------------------------------------------------------------------------

    @rule(count=st.integers(min_value=1, max_value=12))
    def put(self, count: int) -> None:
        for _ in range(count):
            self.driver.put()

    @rule()
    def put_batch(self) -> None:
        self.driver.put_batch()

    @rule()
    def put_otherwise(self) -> None:
        self.driver.put_delayed()
        self.driver.put_transactional()
        self.driver.put_durably()
        if self.driver.variant.config.enable_multi_dispatch:
            self.driver.put_multi()

    @rule()
    def flush(self) -> None:
        self.driver.flush()

    @rule()
    def checkpoint(self) -> None:
        self.driver.checkpoint()

    @rule()
    def dispatch(self) -> None:
        self.driver.dispatch()

    @precondition(lambda self: self.driver.variant.deletes)
    @rule()
    def delete_oldest(self) -> None:
        self.driver.delete_oldest()

    # -- stopping ----------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.driver.reopen()

    @rule()
    def kill(self) -> None:
        """Kill the process: what it gave to the kernel stays."""
        driver = self.driver
        in_kernel = driver.ledger.acknowledged
        if driver.variant.has_pool:
            in_kernel = min(in_kernel, driver.ledger.count_below(driver.ledger.committed))
        self._restart(driver.files.process_crash_image(), in_kernel)

    @rule(seed=st.integers(min_value=0, max_value=2**16), which=st.integers(0, 3))
    def lose_power(self, seed: int, which: int) -> None:
        """Lose power: what was not synced is there, gone or torn."""
        ledger = self.driver.ledger
        images = list(self.driver.files.crash_images(Random(seed), 2))
        self._restart(images[which % len(images)], ledger.count_below(ledger.flushed))

    def _restart(self, files: object, least: int) -> None:
        driver = self.driver
        driver.files = files  # type: ignore[assignment]
        driver.open()
        assert driver.store is not None
        _, count = assert_true(driver.store, driver.ledger, least=least)
        driver.ledger.truncated(count)
        driver.ledger.acknowledge()
        driver.ledger.told_flushed(driver.store.log.end_offset)

    # -- reading -----------------------------------------------------------------------------

    @rule(
        topic=st.sampled_from(TOPICS),
        queue_id=st.integers(0, 1),
        offset=st.integers(-1, 60),
        count=st.integers(1, 8),
        tag=st.sampled_from([None, "TagA", "TagB"]),
    )
    def get(self, topic: str, queue_id: int, offset: int, count: int, tag: str | None) -> None:
        store = self.driver.store
        assert store is not None
        message_filter = TagFilter(tag) if tag is not None else None
        result = store.get_messages(topic, queue_id, offset, count, message_filter)
        assert result is not None
        visible = self._visible(topic, queue_id)
        with result:
            assert result.max_offset == max(visible, default=-1) + 1 or not visible
            got = [(number, bytes(view)) for number, view in _pairs(result)]
            wanted = [
                (number, raw)
                for number, raw in sorted(visible.items())
                if number >= offset and (tag is None or _has_tag(raw, tag))
            ]
            assert got == wanted[: len(got)]
            assert len(got) <= count
            if got:
                assert result.status is GetStatus.FOUND
                assert result.next_begin_offset > got[-1][0]
            elif offset in visible:
                assert tag is not None, "a visible message was not served"

    def _visible(self, topic: str, queue_id: int) -> dict[int, bytes]:
        store = self.driver.store
        assert store is not None
        end, start = store.log.readable_end, store.log.min_offset
        return {
            offset: entry.raw
            for entry in self.driver.ledger.entries
            if entry.end <= end and entry.offset >= start
            for key, offset in entry.units
            if key == (topic, queue_id)
        }

    @rule(number=st.integers(0, 9), topic=st.sampled_from(TOPICS))
    def query(self, number: int, topic: str) -> None:
        store = self.driver.store
        assert store is not None
        key = f"k{number}"
        result = store.query(topic, key, 64, 0, 1 << 62)
        found = {int.from_bytes(piece.view[28:36], "big") for piece in result.slices}
        result.release()
        end, start = store.log.readable_end, store.log.min_offset
        wanted = [
            entry.offset
            for entry in self.driver.ledger.entries
            if entry.record.topic == topic
            and key.encode() in entry.keys
            and start <= entry.offset
            and entry.end <= end
        ]
        # Hashes may collide, so more may be found; the newest that fit must be.
        assert set(wanted[-64:]) <= found or len(found) >= 64

    @invariant()
    def nothing_lags_without_a_reason(self) -> None:
        if hasattr(self, "driver") and self.driver.store is not None:
            assert self.driver.store.dispatcher.blocked is None
            assert self.driver.store.flags.writable

    def teardown(self) -> None:
        if hasattr(self, "driver") and self.driver.store is not None:
            self.driver.reopen()


def _pairs(result: object) -> list[tuple[int, memoryview]]:
    return list(zip(result.queue_offsets, result.messages, strict=True))  # type: ignore[attr-defined]


def _has_tag(raw: bytes, tag: str) -> bool:
    return decode_record(raw).properties.get("TAGS") == tag


StoreModel.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestStoreModel = pytest.mark.slow(StoreModel.TestCase)
