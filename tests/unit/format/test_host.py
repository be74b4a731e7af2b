import pytest

from flintmq.format.errors import HostError
from flintmq.format.host import host_text, is_ipv6, pack_host, unpack_host


@pytest.mark.parametrize(
    ("address", "port", "packed", "text"),
    [
        ("192.168.1.10", 54321, "c0a8010a0000d431", "192.168.1.10:54321"),
        ("10.0.0.1", 10911, "0a00000100002a9f", "10.0.0.1:10911"),
        (
            "2001:db8::1",
            54321,
            "20010db80000000000000000000000010000d431",
            "[2001:db8:0:0:0:0:0:1]:54321",
        ),
        ("::1", 0, "00" * 15 + "0100000000", "[0:0:0:0:0:0:0:1]:0"),
    ],
)
def test_hosts_are_packed_and_printed_as_java_does(
    address: str, port: int, packed: str, text: str
) -> None:
    data = pack_host(address, port)
    assert data.hex() == packed
    assert unpack_host(data) == (address, port)
    assert unpack_host(memoryview(data)) == (address, port)
    assert host_text(data) == text
    assert is_ipv6(data) == (":" in address)


def test_java_prints_a_mapped_address_as_ipv4() -> None:
    assert host_text(pack_host("::ffff:10.0.0.1", 80)) == "10.0.0.1:80"


@pytest.mark.parametrize(
    ("address", "port"),
    [("localhost", 1), ("", 1), ("1.2.3", 1), ("1.2.3.4", -1), ("1.2.3.4", 65536)],
)
def test_what_is_no_numeric_host_is_refused(address: str, port: int) -> None:
    with pytest.raises(HostError):
        pack_host(address, port)


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_only_two_lengths_are_hosts(size: int) -> None:
    with pytest.raises(HostError):
        unpack_host(bytes(size))
    with pytest.raises(HostError):
        host_text(bytes(size))
