import logging

import pytest

from flintmq.store.recovery.recovery_progress import RECORDS_PER_LOOK, RecoveryProgress
from flintmq.testing import ManualClock


def test_a_long_recovery_says_every_second_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    progress = RecoveryProgress(clock)
    progress.note("checked", RECORDS_PER_LOOK, 10, 100)
    assert caplog.messages == []
    clock.advance(1000)
    progress.note("checked", RECORDS_PER_LOOK + 1, 11, 100)
    assert caplog.messages == []  # The clock is looked at once in many records.
    progress.note("checked", 3 * RECORDS_PER_LOOK, 50, 100)
    progress.note("checked", 9 * RECORDS_PER_LOOK, 60, 100)
    assert caplog.messages == [f"recovering: checked {3 * RECORDS_PER_LOOK} records, at 50 of 100"]
    clock.advance(1000)
    progress.note("dispatched", 5, 20, 100)
    assert caplog.messages[1:] == ["recovering: dispatched 5 records, at 20 of 100"]
