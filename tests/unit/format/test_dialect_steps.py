"""Bodies that are written in steps have the bytes of those that are written at once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.wire.bodies.dialect import dumps_body, dumps_in_steps
from flintmq.model.message_queue import MessageQueue
from tests.kits.counted_steps import counted

queues = st.builds(MessageQueue, st.text(max_size=3), st.text(max_size=3), st.integers(0, 9))
names = st.one_of(st.text(max_size=4), st.integers(), queues)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), queues),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(names, inner, max_size=5)),
    max_leaves=30,
)


def written(value: Any) -> tuple[bytes, int]:
    """Return the body of a value and in how many steps it was written."""
    return counted(dumps_in_steps(value))


@given(values)
def test_both_write_the_same(value: Any) -> None:
    assert written(value)[0] == dumps_body(value)


def test_no_step_writes_more_than_a_few_members() -> None:
    for value in (list(range(10_000)), {number: number for number in range(10_000)}):
        assert written(value)[1] >= 10_000 // 32


@pytest.mark.parametrize(
    "member",
    [
        {"half": "\ud800"},
        {"\udfff": 1},
        {"large": 1 << 70, "negative": -(1 << 70)},
        {7: True, -1: False},
        {"text": 'ä"\\\x00\x1f\x7f\u2028\n', "truth": True, "number": -5},
        {"none": None, "rest": 1},
        {str(number): number for number in range(40)},
        {},
    ],
)
def test_small_objects_of_all_kinds_are_the_same(member: dict[Any, Any]) -> None:
    for value in ({"a": member, "b": member}, [member, member]):
        assert written(value)[0] == dumps_body(value)


def test_a_table_of_small_objects_is_interrupted_at_each_of_them() -> None:
    assert written({str(number): {"a": 1, "b": "c"} for number in range(500)})[1] >= 500


def test_large_bodies_are_joined_in_pieces() -> None:
    value = {f"name-{number}": {"text": "ä" * (number % 7)} for number in range(5000)}
    assert written(value)[0] == dumps_body(value)
