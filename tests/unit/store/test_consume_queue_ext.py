import pytest

from flintmq.format.stored.consume_queue_ext import ExtUnit, address
from flintmq.store.errors import DiskFullError
from flintmq.store.views.consume_queue_ext import ConsumeQueueExt
from flintmq.testing import ROOT, Fault, SimulatedFiles
from tests.kits.store.store_kit import STORE_MS

DIRECTORY = ROOT / "consumequeue_ext" / "T" / "0"
BITMAP = bytes(range(1, 9))
UNIT = ExtUnit(2598919, STORE_MS, BITMAP)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def make(files: SimulatedFiles, file_size: int = 64) -> ConsumeQueueExt:
    return ConsumeQueueExt(DIRECTORY, file_size=file_size, files=files, clock=files.clock)


def load(files: SimulatedFiles) -> ConsumeQueueExt:
    ext = make(files)
    ext.load()
    return ext


@pytest.fixture
def ext(files: SimulatedFiles) -> ConsumeQueueExt:
    return make(files)


def put(ext: ConsumeQueueExt, unit: ExtUnit = UNIT) -> int:
    found = ext.put(unit)
    assert found is not None
    return found


def test_units_and_addresses_are_those_of_the_reference_store(
    ext: ConsumeQueueExt, files: SimulatedFiles
) -> None:
    """The vector of the specification: files of 64 bytes, two units in each."""
    addresses = [put(ext) for _ in range(4)]
    assert [(found & (1 << 64) - 1).to_bytes(8, "big").hex() for found in addresses] == [
        "8000000000000000",
        "800000000000001c",
        "8000000000000040",
        "800000000000005c",
    ]
    unit = "001c000000000027a8070000018bcfe569c800080102030405060708"
    content = files.read(DIRECTORY / f"{0:020d}").hex()
    assert content == unit * 2 + "ffff" + "00" * 6


def test_a_unit_is_found_by_its_address(ext: ConsumeQueueExt) -> None:
    without = ExtUnit(-5, STORE_MS + 1, None)
    addresses = [put(ext), put(ext, without), put(ext)]
    assert [ext.get(found) for found in addresses] == [UNIT, without, UNIT]


@pytest.mark.parametrize("at", [1, 27, 56, 60, 64, 1000])
def test_where_no_unit_is_none_is_found(ext: ConsumeQueueExt, at: int) -> None:
    put(ext)
    put(ext)
    found = ext.get(address(at))
    assert found is None or found != UNIT


def test_a_unit_that_fits_no_file_is_not_stored(ext: ConsumeQueueExt) -> None:
    assert ext.put(ExtUnit(1, 2, bytes(41))) is None
    assert ext.put(ExtUnit(1, 2, bytes(40))) is not None


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_a_full_disk_changes_nothing(
    ext: ConsumeQueueExt, files: SimulatedFiles, operation: str
) -> None:
    put(ext)
    put(ext)
    files.fail_next(operation, Fault.ENOSPC)
    with pytest.raises(DiskFullError):
        ext.put(UNIT)
    assert len(files.list(DIRECTORY)) == 1
    assert put(ext) == address(64)
    assert ext.get(address(64)) == UNIT


def test_an_extension_is_found_again(ext: ConsumeQueueExt, files: SimulatedFiles) -> None:
    addresses = [put(ext) for _ in range(5)]
    ext.close()
    again = load(files)
    assert [again.get(found) for found in addresses] == [UNIT] * 5
    assert put(again) == address(128 + 28)


def test_a_damaged_unit_ends_the_extension(files: SimulatedFiles) -> None:
    ext = make(files)
    for _ in range(5):
        put(ext)
    ext.close()
    path = DIRECTORY / f"{64:020d}"
    data = bytearray(files.read(path))
    data[0:2] = b"\x7f\xff"
    files.write(path, bytes(data))
    again = load(files)
    assert put(again) == address(64)
    assert not files.exists(DIRECTORY / f"{128:020d}")


def test_what_comes_behind_a_unit_can_be_cut_off(
    ext: ConsumeQueueExt, files: SimulatedFiles
) -> None:
    addresses = [put(ext) for _ in range(5)]
    ext.cut_after(addresses[1])
    assert len(files.list(DIRECTORY)) == 1
    assert ext.get(addresses[1]) == UNIT
    assert put(ext) == addresses[2]
    ext.cut_after(None)
    assert files.list(DIRECTORY) == []
    assert put(ext) == addresses[0]


def test_what_comes_before_a_unit_can_be_cut_off(
    ext: ConsumeQueueExt, files: SimulatedFiles
) -> None:
    addresses = [put(ext) for _ in range(5)]
    ext.cut_before(addresses[1])
    assert len(files.list(DIRECTORY)) == 3
    ext.cut_before(addresses[4])
    assert [entry.name for entry in files.list(DIRECTORY)] == [f"{128:020d}"]
    assert ext.get(addresses[0]) is None
    assert ext.get(addresses[4]) == UNIT
