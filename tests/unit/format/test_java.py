import pytest

from flintmq.format.java import (
    TAGS_CACHE_LENGTH_MAX,
    ascii_hash,
    crc31,
    encoded_tags_code,
    extend_hash,
    index_hash,
    signed,
    string_hash,
    tags_code,
)
from flintmq.format.stored.index_file import key_text_hash, slot_position

HASHES = [
    ("", 0, "0000000000000000"),
    ("a", 97, "0000000000000061"),
    ("TagA", 2598919, "000000000027a807"),
    ("TagB", 2598920, "000000000027a808"),
    ("TagA||TagB", 1789476431, "000000006aa93e4f"),
    ("order-created", -392709271, "ffffffffe897bb69"),
    ("my-tag", -1061188615, "ffffffffc0bf8bf9"),
    ("refund_completed", -1307387324, "ffffffffb212da44"),
    ("polygenelubricants", -2147483648, "ffffffff80000000"),
    ("\u8ba2\u5355", 1129459, "0000000000113bf3"),
    ("\U0001f600", 1772899, "00000000001b0d63"),
]


@pytest.mark.parametrize(("text", "expected", "tags_code_hex"), HASHES)
def test_the_hash_of_a_text_is_java_s(text: str, expected: int, tags_code_hex: str) -> None:
    assert string_hash(text) == expected
    assert tags_code(text) == expected
    assert encoded_tags_code(text.encode()) == expected
    assert tags_code(text).to_bytes(8, "big", signed=True).hex() == tags_code_hex
    assert signed(extend_hash(0, text.encode())) == expected


def test_a_lone_surrogate_is_one_unit() -> None:
    assert string_hash("\ud83d") == 0xD83D
    assert string_hash("a\udc00") == 97 * 31 + 0xDC00


def test_bytes_that_are_not_utf_8_count_as_the_replacement_character() -> None:
    assert extend_hash(0, b"\xff") == 0xFFFD


def test_a_hash_is_extended_over_any_kind_of_rest() -> None:
    prefix = string_hash("TopicTest#") & 0xFFFFFFFF
    for rest in ("", "k1", "\u8ba2\u5355", "x" * 1000, "\U0001f600" * 300):
        whole = string_hash("TopicTest#" + rest)
        assert extend_hash(prefix, rest.encode()) == whole & 0xFFFFFFFF


def test_texts_longer_than_the_tags_cache_takes_have_a_code_too() -> None:
    text = "t" * (TAGS_CACHE_LENGTH_MAX + 1)
    assert tags_code(text) == encoded_tags_code(text.encode()) == string_hash(text)


def test_every_length_around_the_steps_of_the_fold_is_hashed_right() -> None:
    for size in [*range(70), 255, 256, 257, 511, 512, 513, 1000]:
        data = bytes(33 + at * 7 % 94 for at in range(size))
        expected = 0
        for byte in data:
            expected = (31 * expected + byte) & 0xFFFFFFFF
        assert ascii_hash(data) == expected
    assert ascii_hash(b"\x7f" * 256) == string_hash("\x7f" * 256) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "hash32", "stored", "slot", "position"),
    [
        ("k1", 2746024, 0x0029E6A8, 2746024, 10984136),
        ("k2", 2746025, 2746025, 2746025, 10984140),
        ("C0A8010A1F9818B4AAC22D2B1A2B0000", -544338890, 0x2071F3CA, 4338890, 17355600),
        ("tbaekxa", -2147483648, 0, 0, 40),
    ],
)
def test_the_index_stores_the_hash_without_its_sign(
    key: str, hash32: int, stored: int, slot: int, position: int
) -> None:
    assert string_hash(f"TopicTest#{key}") == hash32
    assert index_hash(hash32 & 0xFFFFFFFF) == stored
    assert key_text_hash("TopicTest", key) == stored
    assert stored % 5_000_000 == slot
    assert slot_position(slot) == position


def test_the_index_hash_is_the_absolute_value_where_there_is_one() -> None:
    assert index_hash(0) == 0
    assert index_hash(0x7FFFFFFF) == 0x7FFFFFFF
    assert index_hash(0x80000000) == 0
    assert index_hash(0x80000001) == 0x7FFFFFFF
    assert index_hash(0xFFFFFFFF) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", 0),
        (b"123456789", 0x4BF43926),
        (b"Hello RocketMQ", 0x69C865ED),
        (b"v6", 0x77065916),
        (b"b2", 0x5EC54A5A),
        (bytes(4), 0x2144DF1C),
    ],
)
def test_the_checksum_has_31_bits(body: bytes, expected: int) -> None:
    assert crc31(body) == expected
    assert crc31(memoryview(body)) == expected
