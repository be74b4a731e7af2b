from random import Random

import pytest

from flintmq.format.stored.checkpoint import (
    FILE_SIZE,
    Checkpoint,
    CheckpointMarks,
    encode_checkpoint,
)
from flintmq.store.errors import DiskFullError, StoreIOError
from flintmq.store.log.checkpoint_file import CheckpointFile
from flintmq.testing import ROOT, Fault, SimulatedFiles

PATH = ROOT / "checkpoint"
MARKS = CheckpointMarks(100, 90, 20231114221320456, 7, 5, 3, 12)
VALUE = Checkpoint(3, 2, 1, MARKS)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def loaded(files: SimulatedFiles) -> CheckpointFile:
    file = CheckpointFile(PATH, files=files)
    assert file.load() == ""
    return file


def test_what_is_saved_is_found_again(files: SimulatedFiles) -> None:
    file = CheckpointFile(PATH, files=files)
    file.save(VALUE)
    assert file.value == VALUE
    file.close()
    file.close()
    assert loaded(files).value == VALUE
    assert files.size(PATH) == FILE_SIZE


def test_a_save_is_durable_with_its_name(files: SimulatedFiles) -> None:
    CheckpointFile(PATH, files=files).save(VALUE)
    dark = next(files.crash_images(Random(0), 0))
    assert loaded(dark).value == VALUE


def test_a_save_writes_over_the_last_one(files: SimulatedFiles) -> None:
    file = CheckpointFile(PATH, files=files)
    for number in range(3):
        file.save(Checkpoint(number, number, number, MARKS))
    assert files.count("create") == 1
    assert loaded(files).value.physic == 2


def test_a_missing_page_is_told(files: SimulatedFiles) -> None:
    file = CheckpointFile(PATH, files=files)
    assert file.load() == "missing"
    assert file.value == Checkpoint()


@pytest.mark.parametrize("page", [b"", b"short", bytes(FILE_SIZE + 1)])
def test_a_page_of_another_size_is_told_and_replaced(files: SimulatedFiles, page: bytes) -> None:
    files.write(PATH, page)
    file = CheckpointFile(PATH, files=files)
    assert file.load() != ""
    file.save(VALUE)
    assert loaded(files).value == VALUE


def test_a_torn_page_has_no_marks(files: SimulatedFiles) -> None:
    files.write(PATH, encode_checkpoint(VALUE)[:100] + bytes(FILE_SIZE - 100))
    assert loaded(files).value == Checkpoint(3, 2, 1, None)


def test_a_page_of_a_java_broker_has_no_marks(files: SimulatedFiles) -> None:
    """It moves the times and leaves the rest as it finds it."""
    page = bytearray(encode_checkpoint(VALUE))
    page[7] = 9
    files.write(PATH, bytes(page))
    assert loaded(files).value == Checkpoint(9, 2, 1, None)


@pytest.mark.parametrize(
    ("operation", "fault", "error"),
    [
        ("region_write", Fault.EIO, StoreIOError),
        ("region_write", Fault.SHORT_WRITE, DiskFullError),
        ("region_sync", Fault.EIO, StoreIOError),
    ],
)
def test_a_save_that_fails_changes_nothing_that_is_relied_on(
    files: SimulatedFiles, operation: str, fault: Fault, error: type[Exception]
) -> None:
    file = CheckpointFile(PATH, files=files)
    file.save(VALUE)
    files.fail_next(operation, fault)
    with pytest.raises(error):
        file.save(Checkpoint(9, 9, 9, MARKS))
    assert file.value == VALUE
    for image in files.crash_images(Random(0), 20):
        found = loaded(image).value
        assert found in (VALUE, Checkpoint(9, 9, 9, MARKS)) or found.marks is None
