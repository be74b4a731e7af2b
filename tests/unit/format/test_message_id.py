import pytest

from flintmq.format.errors import MessageIdError, RecordTooLargeError
from flintmq.format.host import pack_host
from flintmq.format.message_id import (
    UniqueId,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    encode_unique_id,
)


@pytest.mark.parametrize(
    ("address", "offset", "text"),
    [
        ("10.0.0.1", 0, "0A00000100002A9F0000000000000000"),
        ("192.168.0.100", 1073742000, "C0A8006400002A9F00000000400000B0"),
        ("10.1.2.3", 123456789, "0A01020300002A9F00000000075BCD15"),
        (
            "2001:db8::2",
            176,
            "20010DB800000000000000000000000200002A9F00000000000000B0",
        ),
    ],
)
def test_an_offset_id_names_host_and_offset(address: str, offset: int, text: str) -> None:
    host = pack_host(address, 10911)
    assert encode_offset_id(host, offset) == text
    assert decode_offset_id(text) == (host, offset)
    assert decode_offset_id(text.lower()) == (host, offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0A00000100002A9F000000000000000",
        "0A00000100002A9F00000000000000000",
        "0A00000100002A9F000000000000000G",
        "0A00000100002A9F 000000000000000",
        "0A00000100002A9FFFFFFFFFFFFFFFFF",
        "\uff10A00000100002A9F000000000000000",
    ],
)
def test_other_texts_are_no_offset_ids(text: str) -> None:
    with pytest.raises(MessageIdError):
        decode_offset_id(text)


def test_what_has_no_offset_id_is_refused() -> None:
    with pytest.raises(MessageIdError):
        encode_offset_id(bytes(7), 0)
    with pytest.raises(RecordTooLargeError):
        encode_offset_id(bytes(8), -1)
    with pytest.raises(RecordTooLargeError):
        encode_offset_id(bytes(8), 1 << 63)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            UniqueId(bytes([10, 1, 2, 3]), 12345, 0x18B4AAC2, 1413015123, 7),
            "0A010203303918B4AAC25438E6530007",
        ),
        (
            UniqueId(bytes([192, 168, 1, 10]), 1234, 0x18B4AAC2, 1203200000, 5),
            "C0A8010A04D218B4AAC247B760000005",
        ),
        (
            UniqueId(bytes(15) + b"\x01", 1, 0xFFFFFFFF, 2678399999, 0xFFFF),
            "000000000000000000000000000000010001FFFFFFFF9FA523FFFFFF",
        ),
    ],
)
def test_a_unique_id_is_made_as_java_clients_make_it(parts: UniqueId, text: str) -> None:
    assert encode_unique_id(*parts) == text
    assert decode_unique_id(text) == parts


def test_numbers_are_cut_to_their_bits() -> None:
    text = encode_unique_id(bytes(4), 0x12345, -1, 1 << 32, 0x10002)
    assert decode_unique_id(text) == UniqueId(bytes(4), 0x2345, 0xFFFFFFFF, 0, 2)


def test_other_texts_and_addresses_make_no_unique_id() -> None:
    with pytest.raises(MessageIdError):
        decode_unique_id("0A01")
    with pytest.raises(MessageIdError):
        encode_unique_id(bytes(5), 0, 0, 0, 0)
