import pytest

from flintmq.format.errors import BatchError, RecordTooLargeError
from flintmq.format.stored.batch import BatchItem, encode_batch, join_properties, walk_batch

ITEMS = [BatchItem(0, b"b1", b"TAGS\x01TagA"), BatchItem(7, b"b2", b"")]
BODY = bytes.fromhex(
    "000000210000000000000000000000000000000262310009544147530154616741"
    "000000180000000000000000000000070000000262320000"
)


def test_a_batch_is_written_and_read_as_java_clients_send_it() -> None:
    assert encode_batch(ITEMS) == BODY
    assert list(walk_batch(BODY)) == ITEMS
    assert list(walk_batch(memoryview(BODY))) == ITEMS
    assert list(walk_batch(b"")) == []


def test_size_magic_and_checksum_of_an_item_are_ignored() -> None:
    assert list(walk_batch(b"\xff" * 12 + BODY[12:])) == ITEMS


def test_a_batch_that_is_cut_off_is_refused() -> None:
    for size in {*range(len(BODY))} - {0, 33}:
        with pytest.raises(BatchError) as caught:
            list(walk_batch(BODY[:size]))
        assert caught.value.offset == (0 if size < 33 else 33)


@pytest.mark.parametrize("position", [16, 22])
def test_a_negative_length_is_refused(position: int) -> None:
    damaged = bytearray(BODY)
    damaged[position] |= 0x80
    with pytest.raises(BatchError, match="of -"):
        list(walk_batch(damaged))


def test_more_items_than_allowed_are_refused() -> None:
    assert len(list(walk_batch(BODY, count_max=2))) == 2
    with pytest.raises(BatchError, match="more than 1") as caught:
        list(walk_batch(BODY, count_max=1))
    assert caught.value.offset == 33


def test_an_item_s_properties_have_a_limit() -> None:
    with pytest.raises(RecordTooLargeError):
        encode_batch([BatchItem(0, b"", bytes(32768))])


@pytest.mark.parametrize(
    ("item", "batch", "joined"),
    [
        (b"", b"", b""),
        (b"A\x01a", b"", b"A\x01a"),
        (b"", b"B\x01b", b"B\x01b"),
        (b"A\x01a", b"B\x01b", b"A\x01a\x02B\x01b"),
        (b"A\x01a\x02", b"B\x01b", b"A\x01a\x02B\x01b"),
        (b"A\x01a\x02", b"", b"A\x01a\x02"),
    ],
)
def test_properties_are_joined_by_one_separator(item: bytes, batch: bytes, joined: bytes) -> None:
    assert join_properties(item, batch) == joined
