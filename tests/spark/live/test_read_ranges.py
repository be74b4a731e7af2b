"""Ranges of offsets: limits are fair and kept, parts cover everything once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.places import (
    Places,
    QueuePlace,
    SeenRecord,
    place_of,
    places_from_json,
    places_to_json,
    proven_range,
)
from flintmq.spark.live.ranges import (
    QueueRange,
    judge,
    share_out,
    split,
)

queues = st.builds(
    MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 5)
)
offsets = st.integers(0, 1 << 40)
ranges = st.lists(
    st.builds(lambda q, at, n: QueueRange(q, at, at + n), queues, offsets, st.integers(0, 50)),
    max_size=12,
    unique_by=lambda one: one.queue,
)


@given(ranges=ranges, limit=st.integers(1, 300), size=st.integers(1, 20))
def test_a_limit_is_kept_and_used_up(ranges: list[QueueRange], limit: int, size: int) -> None:
    sizes = {one.queue: size for one in ranges}
    taken = share_out(ranges, limit, sizes)
    assert {one.queue: one.start for one in taken} == {one.queue: one.start for one in ranges}
    by_queue = {one.queue: one for one in ranges}
    assert all(one.end <= by_queue[one.queue].end for one in taken)
    count, have = sum(one.length for one in taken), sum(one.length for one in ranges)
    assert count == min(have, max(1, limit // size))


@given(ranges=ranges, limit=st.integers(1, 300))
def test_no_queue_gets_less_than_another_that_has_no_more_to_give(
    ranges: list[QueueRange], limit: int
) -> None:
    by_queue = {one.queue: one for one in ranges}
    taken = share_out(ranges, limit)
    most = max((one.length for one in taken), default=0)
    for one in taken:
        assert one.length == by_queue[one.queue].length or one.length >= most - 1


@given(ranges=ranges.filter(any), limit=st.integers(1, 5))
def test_every_queue_has_its_turn_under_the_smallest_limit(
    ranges: list[QueueRange], limit: int
) -> None:
    """Each round takes from the next queues, also while all of them go on growing."""
    at = {one.queue: one.start for one in ranges}
    for _ in range(2 * len(ranges)):
        growing = [QueueRange(queue, start, start + 1000) for queue, start in at.items()]
        at = {one.queue: one.end for one in share_out(growing, limit)}
    assert all(at[one.queue] > one.start for one in ranges)


def test_sizes_of_messages_count_where_bytes_are_limited() -> None:
    small, large = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)
    found = share_out(
        [QueueRange(small, 0, 1000), QueueRange(large, 0, 1000)], 2000, {small: 10, large: 500}
    )
    assert found == [QueueRange(small, 0, 100), QueueRange(large, 0, 2)]


@given(ranges=ranges, partitions_min=st.none() | st.integers(1, 40), rows_max=st.integers(1, 60))
def test_parts_cover_every_offset_once_and_in_order(
    ranges: list[QueueRange], partitions_min: int | None, rows_max: int
) -> None:
    parts = split(ranges, partitions_min=partitions_min, rows_max=rows_max)
    for one in ranges:
        mine = [part for part in parts if part.queue == one.queue]
        covered = [offset for part in mine for offset in range(part.start, part.end)]
        assert covered == list(range(one.start, one.end))
    assert all(0 < part.length <= rows_max for part in parts)
    total = sum(one.length for one in ranges)
    assert len(parts) >= min(partitions_min or 0, total)


proofs = st.builds(
    SeenRecord,
    offsets,
    st.integers(-(1 << 62), 1 << 62),
    st.binary(min_size=16, max_size=16).map(bytes.hex),
)
places = st.builds(QueuePlace, offsets, st.none() | offsets, st.none() | proofs, st.booleans())


@given(found=st.dictionaries(queues, places))
def test_places_survive_json(found: Places) -> None:
    assert places_from_json(json.loads(json.dumps(places_to_json(found)))) == found


@pytest.mark.parametrize(
    "value",
    [True, "3", None, {}, {"offset": "3"}, {"offset": 3, "more": 1}, {"offset": 3, "last": "1/2"}],
)
def test_what_is_no_place_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"no (place|offset|proof)"):
        place_of(value)


@given(start=places, end=places)
def test_what_a_batch_covers_does_not_depend_on_its_start_where_its_end_tells(
    start: QueuePlace, end: QueuePlace
) -> None:
    queue = MessageQueue("t", "a", 0)
    found = proven_range(queue, start, end).wanted
    if end.start is not None and start != end:
        assert found == proven_range(queue, None, end).wanted
        assert found.start == end.start
    assert found.start <= found.end


@given(wanted=offsets, least=offsets, length=st.integers(0, 100))
def test_loss_is_seen_on_both_sides_of_a_queue(wanted: int, least: int, length: int) -> None:
    loss = judge(wanted, least, least + length)
    if least <= wanted <= least + length:
        assert loss is None
    else:
        assert loss is not None
        assert loss.resume == (least if wanted < least else least + length)
