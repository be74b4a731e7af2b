import logging

import pytest

from flintmq.store.running_flags import LASTING_FLAGS, RunningFlag, RunningFlags


def test_a_new_store_may_be_read_and_written() -> None:
    flags = RunningFlags()
    assert (flags.readable, flags.writable, flags.queue_writable) == (True, True, True)
    assert flags.reasons() == []


@pytest.mark.parametrize(
    ("flag", "readable", "writable", "queue_writable"),
    [
        (RunningFlag.NOT_READABLE, False, True, True),
        (RunningFlag.NOT_WRITABLE, True, False, False),
        (RunningFlag.QUEUE_WRITE_FAILED, True, False, False),
        (RunningFlag.INDEX_WRITE_FAILED, True, False, False),
        (RunningFlag.DISK_FULL, True, False, True),
        (RunningFlag.SYNC_FAILED, True, False, True),
    ],
)
def test_each_flag_forbids_its_own(
    flag: RunningFlag, readable: bool, writable: bool, queue_writable: bool
) -> None:
    flags = RunningFlags()
    flags.set(flag, "a reason")
    assert flags.bits == flag
    assert (flags.readable, flags.writable, flags.queue_writable) == (
        readable,
        writable,
        queue_writable,
    )


def test_the_first_five_values_are_those_of_java() -> None:
    assert [flag.value for flag in RunningFlag] == [0x01, 0x02, 0x04, 0x08, 0x10, 0x20]


def test_what_is_cleared_is_allowed_again() -> None:
    flags = RunningFlags()
    flags.set(RunningFlag.DISK_FULL, "97 percent used")
    flags.set(RunningFlag.NOT_WRITABLE, "an operator said so")
    flags.clear(RunningFlag.DISK_FULL)
    assert not flags.writable
    flags.clear(RunningFlag.NOT_WRITABLE)
    flags.clear(RunningFlag.NOT_WRITABLE)
    assert flags.writable
    assert flags.reasons() == []


@pytest.mark.parametrize("flag", list(LASTING_FLAGS))
def test_a_lasting_flag_is_never_cleared_and_keeps_its_first_reason(flag: RunningFlag) -> None:
    flags = RunningFlags()
    flags.set(flag, "first")
    flags.set(flag, "second")
    with pytest.raises(AssertionError):
        flags.clear(flag)
    assert flags.reasons() == [f"{flag.words}: first"]


def test_reasons_name_the_flag_and_are_kept_up_to_date() -> None:
    flags = RunningFlags()
    flags.set(RunningFlag.SYNC_FAILED, "Input/output error")
    flags.set(RunningFlag.DISK_FULL, "91 percent used")
    flags.set(RunningFlag.DISK_FULL, "92 percent used")
    assert flags.reasons() == ["disk full: 92 percent used", "sync failed: Input/output error"]


def test_only_changes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    flags = RunningFlags()
    with caplog.at_level(logging.INFO):
        flags.set(RunningFlag.DISK_FULL, "91 percent used")
        flags.set(RunningFlag.DISK_FULL, "92 percent used")
        flags.clear(RunningFlag.DISK_FULL)
        flags.clear(RunningFlag.DISK_FULL)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
