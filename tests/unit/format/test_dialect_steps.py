"""Bodies that are written in steps have the bytes of those that are written at once."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.wire.bodies.dialect import dumps_body, dumps_in_steps
from flintmq.model.message_queue import MessageQueue

queues = st.builds(MessageQueue, st.text(max_size=3), st.text(max_size=3), st.integers(0, 9))
names = st.one_of(st.text(max_size=4), st.integers(), queues)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), queues),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(names, inner, max_size=5)),
    max_leaves=30,
)


def written(value: Any) -> tuple[bytes, int]:
    """Return the body of a value and in how many steps it was written."""
    steps, count = dumps_in_steps(value), 0
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value, count
        count += 1


@given(values)
def test_both_write_the_same(value: Any) -> None:
    assert written(value)[0] == dumps_body(value)


def test_no_step_writes_more_than_a_few_members() -> None:
    for value in (list(range(10_000)), {number: number for number in range(10_000)}):
        assert written(value)[1] >= 10_000 // 32
