import pytest

from flintmq.format.errors import PropertiesError
from flintmq.format.properties import decode_properties, encode_properties, find_property


def text(readable: str) -> bytes:
    """Write = for 0x01 and ; for 0x02."""
    return readable.replace("=", "\x01").replace(";", "\x02").encode()


def test_pairs_are_joined_without_none_but_with_empty_values() -> None:
    encoded = encode_properties({"TAGS": "TagA", "X": None, "E": "", "KEYS": "k1 k2"})
    assert encoded.hex() == "54414753015461674102450102" + "4b455953016b31206b32"


PARSED = [
    ("", {}),
    ("A=;B=b", {"B": "b"}),
    ("=v", {}),
    ("AB=", {}),
    ("K=v;", {"K": "v"}),
    ("K=a=b", {"K": "a\x01b"}),
    ("abc;K=v", {"K": "v"}),
    ("K=v1;K=v2", {"K": "v2"}),
    (";;K=v", {"K": "v"}),
    ("K=v1;K=", {"K": "v1"}),
    ("K=v1;K=;K=;L=x", {"K": "v1", "L": "x"}),
    ("K=a=b;XK=c", {"K": "a\x01b", "XK": "c"}),
    ("X=K=v", {"X": "K\x01v"}),
    ("X=K=v;K=w;KK=u", {"X": "K\x01v", "K": "w", "KK": "u"}),
    ("K==v", {"K": "\x01v"}),
    ("==K=v", {}),
]


@pytest.mark.parametrize(("readable", "expected"), PARSED)
def test_a_segment_counts_only_with_a_name_and_a_value(
    readable: str, expected: dict[str, str]
) -> None:
    assert decode_properties(text(readable)) == expected
    assert decode_properties(memoryview(text(readable))) == expected


@pytest.mark.parametrize(("readable", "expected"), PARSED)
@pytest.mark.parametrize("name", ["K", "B", "A", "AB", "X", "XK", "KK", "L"])
def test_finding_one_property_agrees_with_decoding_all(
    readable: str, expected: dict[str, str], name: str
) -> None:
    value = expected.get(name)
    found = find_property(text(readable), name.encode())
    assert found == (None if value is None else value.encode())


def test_bytes_that_are_not_utf_8_are_replaced_unless_reading_is_strict() -> None:
    data = b"K\x01a\xffb\x02L\x01ok"
    assert decode_properties(data) == {"K": "a\ufffdb", "L": "ok"}
    with pytest.raises(PropertiesError) as caught:
        decode_properties(data, strict=True)
    assert caught.value.offset == 3
    assert decode_properties(b"K\x01v", strict=True) == {"K": "v"}


@pytest.mark.parametrize(
    "properties", [{"": "v"}, {"a\x01b": "v"}, {"a\x02": "v"}, {"a": "b\x02c"}, {"a": "\ud800"}]
)
def test_what_no_reader_would_find_again_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(PropertiesError):
        encode_properties(properties)


def test_a_value_may_hold_the_separator_of_names() -> None:
    properties = {"K": "a\x01b"}
    assert decode_properties(encode_properties(properties)) == properties
