"""Round trips and hostile input for the small notations: hashes, hosts, properties, ids, text."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.compression import CompressionType, compress, decompress
from flintmq.format.delay_levels import DelayLevels
from flintmq.format.errors import (
    BatchError,
    CompressionError,
    CorruptUnitError,
    DelayLevelsError,
    MessageIdError,
    StateTextError,
)
from flintmq.format.fastjson import dumps, loads
from flintmq.format.hash_batch import BATCH_COUNT_MAX, LANE_SIZES, hash_keys
from flintmq.format.host import host_text, pack_host, unpack_host
from flintmq.format.java import ascii_hash, extend_hash, index_hash, signed, string_hash
from flintmq.format.message_id import (
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    encode_unique_id,
)
from flintmq.format.properties import decode_properties, encode_properties, find_property
from flintmq.format.stored.batch import (
    BatchColumns,
    BatchItem,
    encode_batch,
    encode_batch_columns,
    walk_batch,
)
from flintmq.format.stored.checkpoint import (
    Checkpoint,
    CheckpointMarks,
    decode_checkpoint,
    encode_checkpoint,
)
from flintmq.format.stored.consume_queue import ConsumeQueueUnit, read_units
from flintmq.format.stored.consume_queue_ext import (
    BITMAP_SIZE_MAX,
    BYTE_OFFSET_MAX,
    ExtUnit,
    address,
    byte_offset,
    decode_ext_unit,
    encode_ext_unit,
    is_address,
)
from flintmq.format.stored.index_file import IndexEntry, IndexHeader

ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
offsets = st.integers(0, (1 << 63) - 1)
counts = st.integers(0, (1 << 31) - 1)
texts = st.text()
any_texts = st.text(st.characters(exclude_categories=()))
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1)
property_soup = st.lists(st.sampled_from([b"\x01", b"\x02", b"K", b"L", b"\xc3\xa9"])).map(b"".join)


def plain_hash(text: str) -> int:
    """Hash unit by unit, as the definition says."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


@given(text=any_texts)
def test_the_hash_follows_its_definition(text: str) -> None:
    assert string_hash(text) & 0xFFFFFFFF == plain_hash(text)
    assert -(1 << 31) <= string_hash(text) < 1 << 31


@given(data=st.binary(max_size=700).map(lambda raw: bytes(byte & 0x7F for byte in raw)))
def test_the_fold_equals_the_definition(data: bytes) -> None:
    assert ascii_hash(data) == plain_hash(data.decode())


@given(prefix=texts, rest=texts)
def test_a_hash_extended_is_the_hash_of_the_whole(prefix: str, rest: str) -> None:
    assert extend_hash(plain_hash(prefix), rest.encode()) == plain_hash(prefix + rest)


short_keys = st.text(st.characters(codec="ascii"), max_size=LANE_SIZES[-1] + 1).map(str.encode)
pairs = st.tuples(st.integers(0, 0xFFFFFFFF), short_keys)


@given(asked=st.lists(pairs) | st.lists(pairs | st.tuples(st.just(7), texts.map(str.encode))))
def test_hashes_in_batches_are_those_of_each_key(asked: list[tuple[int, bytes]]) -> None:
    prefixes = [prefix for prefix, _ in asked]
    keys = [key for _, key in asked]
    assert hash_keys(prefixes, keys) == [extend_hash(prefix, key) for prefix, key in asked]


def test_hashes_in_batches_reach_over_the_end_of_a_batch() -> None:
    keys = [b"\x7f" * (number % (LANE_SIZES[-1] + 1)) for number in range(2 * BATCH_COUNT_MAX + 3)]
    prefixes = [number * 0x1234567 & 0xFFFFFFFF for number in range(len(keys))]
    assert hash_keys(prefixes, keys) == list(map(extend_hash, prefixes, keys))
    assert hash_keys(prefixes[:BATCH_COUNT_MAX], keys[:BATCH_COUNT_MAX]) == list(
        map(extend_hash, prefixes[:BATCH_COUNT_MAX], keys[:BATCH_COUNT_MAX])
    )


@given(unsigned=st.integers(0, 0xFFFFFFFF))
def test_the_index_hash_is_an_absolute_value(unsigned: int) -> None:
    expected = abs(signed(unsigned))
    assert index_hash(unsigned) == (0 if expected == 1 << 31 else expected)


@given(address=st.ip_addresses(), port=st.integers(0, 65535))
def test_hosts_come_back(address: Any, port: int) -> None:
    packed = pack_host(str(address), port)
    assert unpack_host(packed) == (str(address), port)
    assert host_text(packed).endswith(f":{port}")


@given(properties=st.dictionaries(names, values))
def test_properties_come_back_and_each_is_found(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert decode_properties(encoded, strict=True) == properties
    for name, value in properties.items():
        assert find_property(encoded, name.encode()) == value.encode()


@given(data=property_soup, name=st.sampled_from(["K", "L", "KK", "KL", "\u00e9"]))
def test_finding_one_property_agrees_with_decoding_all(data: bytes, name: str) -> None:
    value = decode_properties(data).get(name)
    found = find_property(data, name.encode())
    assert found == (None if value is None else value.encode())


@given(data=st.binary())
def test_any_bytes_are_read_as_properties(data: bytes) -> None:
    for name, value in decode_properties(data).items():
        assert name
        assert value


@given(host=hosts, offset=offsets)
def test_offset_ids_come_back(host: bytes, offset: int) -> None:
    assert decode_offset_id(encode_offset_id(host, offset)) == (host, offset)


@given(
    ip=st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    process_id=st.integers(0, 0xFFFF),
    loader_hash=st.integers(0, 0xFFFFFFFF),
    elapsed_ms=st.integers(0, 0xFFFFFFFF),
    counter=st.integers(0, 0xFFFF),
)
def test_unique_ids_come_back(
    ip: bytes, process_id: int, loader_hash: int, elapsed_ms: int, counter: int
) -> None:
    text = encode_unique_id(ip, process_id, loader_hash, elapsed_ms, counter)
    assert decode_unique_id(text) == (ip, process_id, loader_hash, elapsed_ms, counter)


@given(text=any_texts | st.text("0123456789ABCDEFabcdef xg", min_size=32, max_size=32))
def test_hostile_ids_raise_only_a_message_id_error(text: str) -> None:
    with contextlib.suppress(MessageIdError):
        host, offset = decode_offset_id(text)
        assert encode_offset_id(host, offset) == text.upper()
    with contextlib.suppress(MessageIdError):
        assert encode_unique_id(*decode_unique_id(text)) == text.upper()


@given(text=any_texts | st.text("0123456789smhd "))
def test_hostile_delay_levels_raise_only_their_error(text: str) -> None:
    with contextlib.suppress(DelayLevelsError):
        levels = DelayLevels.parse(text)
        assert levels.max_level == len(text.split())


state_values = st.recursive(
    st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | any_texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner | st.none()) | st.dictionaries(any_texts | longs, inner),
    max_leaves=20,
)


@given(value=state_values)
def test_state_comes_back(value: Any) -> None:
    for sort_members in (True, False):
        assert loads(dumps(value, sort_members=sort_members).encode()) == value


@given(
    text=st.binary()
    | texts
    | st.lists(
        st.sampled_from(["{", "}", "[", "]", ":", ",", '"', "0", "-1", "a", "\\", "null"])
    ).map("".join)
)
def test_hostile_state_raises_only_a_state_text_error(text: bytes | str) -> None:
    with contextlib.suppress(StateTextError):
        value = loads(text)
        assert loads(dumps(value)) == value or "null" in str(text)


@given(value=state_values, data=st.data())
def test_state_that_is_cut_off_is_never_read_as_the_whole(value: Any, data: st.DataObject) -> None:
    text = dumps({"state": value})
    size = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(StateTextError):
        loads(text[:size])


@given(data=st.binary(max_size=2000), kind=st.sampled_from(CompressionType))
def test_bodies_come_back_and_hostile_ones_raise_only_a_compression_error(
    data: bytes, kind: CompressionType
) -> None:
    assert decompress(compress(data, kind), kind, limit=len(data)) == data
    with contextlib.suppress(CompressionError):
        assert len(decompress(data, kind, limit=100)) <= 100


@given(
    data=st.binary(min_size=1, max_size=200),
    kind=st.sampled_from(CompressionType),
    at=st.integers(min_value=0),
    mask=st.integers(1, 255),
)
def test_a_flipped_byte_in_a_compressed_body_raises_only_a_compression_error(
    data: bytes, kind: CompressionType, at: int, mask: int
) -> None:
    packed = bytearray(compress(data, kind))
    packed[at % len(packed)] ^= mask
    with contextlib.suppress(CompressionError):
        assert len(decompress(packed, kind, limit=1000)) <= 1000


items = st.builds(BatchItem, ints, st.binary(), st.binary())


@given(sent=st.lists(items))
def test_batches_come_back(sent: list[BatchItem]) -> None:
    assert list(walk_batch(encode_batch(sent))) == sent


@given(
    sent=st.one_of(st.lists(items), st.builds(lambda one, n: [one] * n, items, st.integers(1, 5))),
    tail_size=st.integers(0, 5),
    before=st.binary(max_size=3),
    behind=st.binary(max_size=3),
    data=st.data(),
)
def test_items_in_columns_are_a_batch_whose_properties_go_on(
    sent: list[BatchItem], tail_size: int, before: bytes, behind: bytes, data: st.DataObject
) -> None:
    tail = st.binary(min_size=tail_size, max_size=tail_size)
    tails = data.draw(st.lists(tail, min_size=len(sent), max_size=len(sent)))
    columns = BatchColumns(
        [one.flag for one in sent], [one.body for one in sent], [one.properties for one in sent]
    )
    assert list(zip(*columns.pick(range(len(sent))), strict=True)) == sent
    body = encode_batch_columns(columns, tails, before=before, behind=behind)
    assert list(walk_batch(body)) == [
        one._replace(properties=one.properties + before + each + behind)
        for one, each in zip(sent, tails, strict=True)
    ]


@given(sent=st.lists(items, min_size=1), data=st.data())
def test_a_batch_that_is_cut_off_is_refused_or_ends_between_items(
    sent: list[BatchItem], data: st.DataObject
) -> None:
    body = encode_batch(sent)
    size = data.draw(st.integers(0, len(body) - 1))
    ends = {len(encode_batch(sent[:count])): count for count in range(len(sent))}
    if size in ends:
        assert list(walk_batch(body[:size])) == sent[: ends[size]]
    else:
        with pytest.raises(BatchError) as caught:
            list(walk_batch(body[:size]))
        assert caught.value.offset == max(end for end in ends if end < size)


@given(body=st.binary())
def test_hostile_batches_raise_only_a_batch_error(body: bytes) -> None:
    with contextlib.suppress(BatchError):
        assert len(encode_batch(walk_batch(body))) == len(body)


units = st.builds(ConsumeQueueUnit, offsets, st.integers(1, (1 << 31) - 1), longs)


@given(written=st.lists(units))
def test_units_come_back(written: list[ConsumeQueueUnit]) -> None:
    file = b"".join(unit.pack() for unit in written) + bytes(40)
    assert list(read_units(file)) == written


@given(data=st.binary())
def test_hostile_units_raise_only_a_corrupt_unit_error(data: bytes) -> None:
    with contextlib.suppress(CorruptUnitError):
        for unit in read_units(data):
            assert unit.record_size > 0
            assert unit.physical_offset >= 0


@given(
    unit=st.builds(ExtUnit, longs, longs, st.none() | st.binary(min_size=1)),
    offset=st.integers(0, BYTE_OFFSET_MAX),
)
def test_extension_units_and_addresses_come_back(unit: ExtUnit, offset: int) -> None:
    encoded = encode_ext_unit(unit)
    assert len(encoded) == unit.size <= BITMAP_SIZE_MAX
    assert decode_ext_unit(encoded + b"more") == unit
    assert byte_offset(address(offset)) == offset
    assert is_address(address(offset))


@given(code=ints)
def test_no_hash_is_an_address(code: int) -> None:
    assert not is_address(code)


@given(data=st.binary(), position=st.integers(-5, 100))
def test_hostile_extension_units_raise_only_a_corrupt_unit_error(
    data: bytes, position: int
) -> None:
    with contextlib.suppress(CorruptUnitError):
        unit = decode_ext_unit(data, position)
        assert unit is None or position + unit.size <= len(data)


@given(header=st.builds(IndexHeader, longs, longs, longs, longs, ints, st.integers(1, 1 << 30)))
def test_index_headers_come_back(header: IndexHeader) -> None:
    assert IndexHeader.unpack_from(header.pack()) == header


@given(entry=st.builds(IndexEntry, counts, offsets, ints, counts))
def test_index_entries_come_back(entry: IndexEntry) -> None:
    assert IndexEntry.unpack_from(entry.pack()) == entry


marks = st.builds(CheckpointMarks, offsets, offsets, offsets, counts, counts, offsets, offsets)


@given(checkpoint=st.builds(Checkpoint, longs, longs, longs, st.none() | marks))
def test_checkpoints_come_back(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


@given(
    checkpoint=st.builds(Checkpoint, longs, longs, longs, marks),
    at=st.integers(0, 147).filter(lambda at: not 24 <= at < 64),
    mask=st.integers(1, 255),
)
def test_a_flipped_byte_makes_the_marks_void(checkpoint: Checkpoint, at: int, mask: int) -> None:
    page = bytearray(encode_checkpoint(checkpoint))
    page[at] ^= mask
    assert decode_checkpoint(page).marks is None
