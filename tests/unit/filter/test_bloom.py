"""The bits of subscriptions: vectors that were computed by Java."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.filter.bloom import BloomFilter, murmur3_low_half

DEFAULT = BloomFilter.of(error_percent=20, consumer_count=32)


def test_the_defaults_give_112_bits_of_which_a_group_has_three() -> None:
    assert BloomFilter(112, 3) == DEFAULT


@pytest.mark.parametrize(
    ("group", "topic", "hashed", "positions", "bitmap"),
    [
        ("groupA", "TopicTest", 0x939E6A4757377137, (49, 5, 28), "2000001000000200000000000000"),
        ("CID_1", "T", 0x2351F1F1DBBA9DE6, (8, 56, 9), "0003000000000001000000000000"),
    ],
)
def test_groups_have_the_bits_of_java(
    group: str, topic: str, hashed: int, positions: tuple[int, ...], bitmap: str
) -> None:
    assert murmur3_low_half(f"{group}#{topic}".encode()) == hashed
    bits = DEFAULT.bits_of(group, topic)
    assert bits.positions == positions
    assert DEFAULT.bitmap([bits]).hex() == bitmap


@given(wanted=st.lists(st.text(max_size=20)), other=st.text(max_size=40))
def test_no_message_is_lost_by_its_notes(wanted: list[str], other: str) -> None:
    bits = [DEFAULT.bits_of(group, "topic") for group in wanted]
    bitmap = DEFAULT.bitmap(bits)
    assert all(one.are_in(bitmap) for one in bits)
    missing = DEFAULT.bits_of(other, "topic")
    assert missing.are_in(bitmap) or other not in wanted
    assert missing.are_in(b"")
    assert missing.are_in(bytes(13))
