import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.access.access_errors import AccessFileError
from flintmq.access.address_patterns import parse_patterns

IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("192.168.0.1", ["192.168.0.1", "::ffff:192.168.0.1"], ["192.168.0.2", "::1"]),
        ("1.2.3.{4,5}", ["1.2.3.4", "1.2.3.5"], ["1.2.3.6", "1.2.4.4"]),
        ("1.2.3.10-20", ["1.2.3.10", "1.2.3.20"], ["1.2.3.9", "1.2.3.21"]),
        ("1.2.3-9.*", ["1.2.3.0", "1.2.9.255"], ["1.2.2.0", "1.2.10.0"]),
        ("1.*.*.*", ["1.0.0.0", "1.255.255.255"], ["2.0.0.0"]),
        ("1.2.3.4, 5.6.7.{8,9}", ["1.2.3.4", "5.6.7.9"], ["5.6.7.10"]),
        ("*", ["1.2.3.4", "fe80::1"], []),
        ("*.*.*.*", ["1.2.3.4", "fe80::1"], []),
        ("", [], ["1.2.3.4", "::"]),
        ("FE80::1", ["fe80::1", "fe80::1%eth0", "fe80:0:0:0:0:0:0:1"], ["fe80::2", "1.2.3.4"]),
        ("fe80::10-1f", ["fe80::10", "fe80::1f"], ["fe80::20"]),
        ("fe80:1:2:3:4:5:6:{7,a}", ["fe80:1:2:3:4:5:6:a"], ["fe80:1:2:3:4:5:6:8"]),
        ("fe80:*:*:*:*:*:*:*", ["fe80::", "fe80::1234:5"], ["fe81::"]),
    ],
)
def test_a_pattern_matches_the_addresses_it_describes(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    patterns = parse_patterns(pattern)
    assert [host for host in inside if not patterns.match(host)] == []
    assert [host for host in outside if patterns.match(host)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("1.2.3", "1.2.3.256", "1.2.3.4.5", "1.2.3.x", "1.2.3.9-3", "1.2.3.{4,5", "a host"),
        *("1:2:3", "1::2::3", "fe80::1ffff", "1:2:3:4:5:6:7:8:9", "1.2.3.-", "1.2.3.{}"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(AccessFileError):
        parse_patterns(pattern)


@given(pattern=st.text(alphabet="0123456789abcf.:*-{}, ", max_size=40), host=IPV4)
def test_any_text_is_a_pattern_or_is_refused(pattern: str, host: str) -> None:
    try:
        patterns = parse_patterns(pattern)
    except AccessFileError:
        return
    assert patterns.match(host) in (True, False)
    assert not patterns.match("no address") or patterns.matches_all


@given(own=IPV4, other=IPV4)
def test_an_ipv4_address_is_a_pattern_of_itself_alone(own: str, other: str) -> None:
    assert parse_patterns(own).match(own)
    assert parse_patterns(own).match(other) == (own == other)


@given(own=IPV6, other=IPV6)
def test_an_ipv6_address_is_the_same_however_it_is_written(
    own: ipaddress.IPv6Address, other: ipaddress.IPv6Address
) -> None:
    if own.ipv4_mapped is not None or other.ipv4_mapped is not None:
        return  # Such an address is one of IPv4.
    for written in (own.compressed, own.exploded.upper()):
        assert parse_patterns(written).match(str(own))
        assert parse_patterns(written).match(str(other)) == (own == other)
