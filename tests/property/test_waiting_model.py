"""Messages that name a time, compared with a model: no early, lost or needlessly repeated delivery.

The clock is in the hands of the test.  A seed plays puts, cancels, waiting, saves, clean restarts
and crashes; then the clock goes past every due time and what was delivered is judged.
"""

from contextlib import suppress
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.store.config import FlushMode
from flintmq.store.message_store import MessageStore
from flintmq.testing import ManualClock, SimulatedCrash, SimulatedFiles
from tests.kits.store.waiting_store import (
    cancel,
    deliver_all,
    delivered_counts,
    open_waiting,
    put_at,
    stored_records,
)

DELAYS_MS: Final = (1, 2, 3, 900, 1000, 4_000, 60_000, 3_600_000, 5 * 86_400_000, 10**11)
FLUSH_MODES: Final = (FlushMode.ASYNC, FlushMode.SYNC)


class Life:
    """A store and what is known of its messages."""

    def __init__(self, seed: int, files: SimulatedFiles, clock: ManualClock) -> None:
        self.rng = Random(seed)
        self.clock = clock
        self.files = files
        self.flush_mode = FLUSH_MODES[seed % 2]
        self.due: dict[str, int] = {}
        """Every message that was put, by its id."""
        self.durable: set[str] = set()
        """Those that the disk had."""
        self.unsaved: set[str] = set()
        """Those that were delivered since the state was saved; a crash repeats them."""
        self.cancelled: set[str] = set()
        self.maybe_cancelled: set[str] = set()
        self.crash_count = 0
        self.store: MessageStore | None = None

    def open(self) -> MessageStore:
        self.store = open_waiting(self.files, self.clock, flush_mode=self.flush_mode)
        return self.store

    def put(self, store: MessageStore) -> None:
        message_id = f"m{len(self.due)}"
        due = self.clock.now_ms() + self.rng.choice(DELAYS_MS)
        self.due[message_id] = due
        assert put_at(store, message_id, due).ok

    def cancel(self, store: MessageStore) -> None:
        waiting = [one for one, due in self.due.items() if due > self.clock.now_ms() + 1]
        if waiting:
            message_id = self.rng.choice(waiting)
            if cancel(store, message_id, self.due[message_id]).ok:
                self.maybe_cancelled.add(message_id)

    def flush(self, store: MessageStore) -> None:
        count, cancelled = len(self.due), set(self.maybe_cancelled)
        store.flush()
        self.durable.update(list(self.due)[:count])
        self.cancelled |= cancelled

    def step(self, store: MessageStore) -> None:
        """Do one thing."""
        match self.rng.choice("ppppcfddddswwx"):
            case "p":
                self.put(store)
            case "c":
                self.cancel(store)
            case "f":
                self.flush(store)
            case "d":
                store.waiting.step(self.rng.choice((1, 2, 25)))
            case "s":
                store.waiting.progress.persist()
            case "w":
                self.clock.advance(self.rng.choice(DELAYS_MS[:8]))
            case "x":
                store.close()
                self.durable.update(self.due)
                self.cancelled |= self.maybe_cancelled
                self.open()

    def judge(self) -> None:
        """Open the store, let everything become due, and look at what was delivered."""
        self.clock.set(max([self.clock.now_ms(), *self.due.values()]) + 1)
        with self.open() as store:
            store.flush()
            deliver_all(store)
            store.flush()
            deliver_all(store)
            store.flush()
            store.dispatch()
            assert store.waiting.waiting_count == 0
            counts = delivered_counts(store)
            for record in stored_records(store):
                assert record.store_timestamp >= self.due[bytes(record.body).decode()]
        for message_id in self.durable:
            if message_id in self.cancelled:
                assert not counts[message_id], f"{message_id} was cancelled"
            elif message_id not in self.maybe_cancelled:
                assert counts[message_id] >= 1, f"{message_id} is lost"
        if not self.crash_count:
            assert counts.keys() == self.due.keys() - self.cancelled
            assert set(counts.values()) <= {1}, "a clean life repeats nothing"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), step_count=st.integers(1, 120))
def test_a_clean_life_delivers_each_message_once_and_in_time(seed: int, step_count: int) -> None:
    clock = ManualClock()
    life = Life(seed, SimulatedFiles(clock=clock), clock)
    life.open()
    for _ in range(step_count):
        assert life.store is not None
        life.step(life.store)
    assert life.store is not None
    life.store.close()
    life.durable.update(life.due)
    life.cancelled |= life.maybe_cancelled
    life.judge()


def play_to(seed: int, step_count: int, crash_at: int | None) -> Life:
    """Play a life until it is over or its process dies before a file call."""
    clock = ManualClock()
    files = SimulatedFiles(clock=clock)
    life = Life(seed, files, clock)
    files.crash_at = crash_at
    with suppress(SimulatedCrash):
        life.open()
        for _ in range(step_count):
            assert life.store is not None
            life.step(life.store)
    return life


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_every_crash_loses_nothing_that_the_disk_had(seed: int) -> None:
    numbers = play_to(seed, 40, None).files.change_numbers()
    assert len(numbers) > 30
    for number in numbers:
        life = play_to(seed, 40, number)
        life.crash_count = 1
        after, now_ms = life.files, life.clock.now_ms()
        images = [after.process_crash_image(), *after.crash_images(Random(number), 2)]
        for image in images:
            life.files, life.clock = image, ManualClock(now_ms)
            try:
                life.judge()
            except AssertionError as error:
                error.add_note(f"seed {seed}, before call {number}")
                raise
