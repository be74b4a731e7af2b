"""The pure parts of a consumer: sharing, deciding, holding."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.client.assigning.process_queue import (
    LOCK_VALID_MS,
    NOTHING,
    PULL_EXPIRED_MS,
    ProcessQueue,
)
from flintmq.client.assigning.rebalance import decide
from flintmq.client.assigning.strategies import (
    ConsistentHash,
    MachineRoomNearby,
    allocate,
    averagely,
    by_circle,
)
from flintmq.model.message_queue import MessageQueue
from tests.kits.client.consumer_model import message
from tests.kits.leftovers import LEAVES_NOTHING

pytestmark = pytest.mark.usefixtures(LEAVES_NOTHING)

NOW_MS: Final = 1_700_000_000_000
TOPIC: Final = "orders"

queues = st.sets(
    st.builds(MessageQueue, st.just(TOPIC), st.sampled_from(["a", "b", "c"]), st.integers(0, 15)),
    min_size=1,
    max_size=30,
)
ids = st.sets(st.from_regex(r"[abc]-[0-9]{1,3}", fullmatch=True), min_size=1, max_size=12)
nearby = MachineRoomNearby(
    averagely, room_of_queue=lambda one: one.broker_name, room_of_client=lambda one: one[0]
)
strategies = st.sampled_from([averagely, by_circle, ConsistentHash(), nearby])


@given(strategy=strategies, found=queues, members=ids)
def test_every_queue_has_exactly_one_member(strategy, found, members) -> None:  # type: ignore[no-untyped-def]
    given_out = [queue for one in members for queue in allocate(strategy, one, found, members)]
    assert sorted(given_out) == sorted(found)


@given(found=queues, members=ids)
def test_shares_differ_by_one_at_most(found: set[MessageQueue], members: set[str]) -> None:
    for strategy in (averagely, by_circle):
        sizes = {len(allocate(strategy, one, found, members)) for one in members}
        assert max(sizes) - min(sizes) <= 1


@given(found=queues, members=ids, leaver=st.randoms(use_true_random=False))
def test_on_a_ring_only_the_queues_of_a_leaver_move(found, members, leaver) -> None:  # type: ignore[no-untyped-def]
    gone = leaver.choice(sorted(members))
    rest = members - {gone}
    for one in rest:
        before = set(allocate(ConsistentHash(), one, found, members))
        assert before <= set(allocate(ConsistentHash(), one, found, rest))


@given(
    held=queues,
    assigned=queues,
    stale=queues,
    unlocked=queues,
    needs_lock=st.booleans(),
)
def test_a_decision_leads_to_what_is_assigned(  # type: ignore[no-untyped-def]
    held, assigned, stale, unlocked, *, needs_lock
) -> None:
    own = {}
    for queue in held:
        own[queue] = ProcessQueue(now_ms=NOW_MS - (PULL_EXPIRED_MS + 1) * (queue in stale))
        own[queue].lock(now_ms=NOW_MS - (LOCK_VALID_MS + 1) * (queue in unlocked))
    other = MessageQueue("others", "a", 0)
    own[other] = ProcessQueue(now_ms=0)
    change = decide(TOPIC, own, assigned, now_ms=NOW_MS, needs_lock=needs_lock)
    kept = own.keys() - set(change.dropped) - {other}
    assert kept | set(change.added) == assigned
    assert not kept & set(change.added)
    assert other not in change.dropped
    assert not kept & stale
    if needs_lock:
        assert not kept & unlocked


@given(
    offsets=st.lists(st.integers(0, 60), unique=True, min_size=1),
    order=st.randoms(use_true_random=False),
)
def test_the_committed_offset_is_that_of_the_oldest_message_held(offsets, order) -> None:  # type: ignore[no-untyped-def]
    held = ProcessQueue(now_ms=NOW_MS)
    assert held.put([], next_offset=7) == 7
    order.shuffle(offsets)
    assert held.put(map(message, offsets), next_offset=100) == NOTHING
    assert held.put(map(message, offsets), next_offset=100) == NOTHING
    assert held.bounds == (min(offsets), max(offsets))
    left = set(offsets)
    order.shuffle(offsets)
    for offset in offsets:
        left.discard(offset)
        expected = min(left) if left else max(offsets) + 1
        assert held.remove([message(offset)]) == expected
        assert held.count == len(left)
        assert held.size == sum(len(b"%d" % one) for one in left)
    assert held.remove([message(offsets[0])]) == NOTHING


@given(count=st.integers(1, 30), steps=st.lists(st.tuples(st.integers(1, 5), st.booleans())))
def test_messages_are_taken_in_order_and_committed_together(
    count: int, steps: list[tuple[int, bool]]
) -> None:
    held = ProcessQueue(now_ms=NOW_MS)
    held.put(map(message, range(count)), next_offset=count)
    done = 0
    for size, is_success in steps:
        taken = held.take(size)
        assert [one.queue_offset for one in taken] == list(range(done, min(done + size, count)))
        if not is_success:
            held.put_back(taken)
            assert held.first_untaken == (done if taken else None)
            continue
        done += len(taken)
        assert held.commit() == (done if taken else NOTHING)
        assert held.count == count - done


@given(waited_ms=st.integers(0, 200), is_started=st.booleans())
def test_only_the_oldest_message_is_ever_stuck(waited_ms: int, *, is_started: bool) -> None:
    held = ProcessQueue(now_ms=NOW_MS)
    first, second = message(3), message(8)
    held.put([first, second], next_offset=9)
    held.start([first, second] if is_started else [second], now_ms=NOW_MS)
    found = held.stuck(now_ms=NOW_MS + waited_ms, timeout_ms=100)
    assert found == (first if is_started and waited_ms > 100 else None)
