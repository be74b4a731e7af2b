"""`verify --start` on every golden damage tells what a start of the same store then does."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from flintmq.offline import find_store, start_config, try_start
from flintmq.store.errors import StoreLoadError
from flintmq.store.message_store import MessageStore
from tests.kits.golden.engine import config_of, copy_store
from tests.kits.golden.golden_sets import DAMAGED_SET_NAMES, damaged_set
from tests.kits.store.offline_stores import fingerprint

WHOLE_END: Final = 249_817
"""Where the log ended before it was damaged."""


@pytest.mark.parametrize("abort", [True, False], ids=["abort", "clean-exit"])
@pytest.mark.parametrize("name", sorted(DAMAGED_SET_NAMES))
def test_a_trial_start_tells_what_a_start_does(name: str, abort: bool, tmp_path: Path) -> None:
    golden = damaged_set(name)
    root = copy_store(golden, tmp_path, abort=abort)
    before = fingerprint(root)
    layout = find_store(root)
    trial = try_start(layout)
    assert fingerprint(root) == before
    written = config_of(golden.expected(), root)
    detected = start_config(layout, {}, with_index=True)
    assert detected.commit_log_file_size == written.commit_log_file_size
    if layout.queues:
        assert detected.consume_queue_file_size == written.consume_queue_file_size
    if trial.recovery is None:
        with pytest.raises(StoreLoadError) as raised:
            MessageStore.open(detected, background=False)
        assert trial.refused == str(raised.value)
        return
    with MessageStore.open(detected, background=False) as store:
        report = store.recovery_report
    assert trial.refused == ""
    assert report.log_end == WHOLE_END or not trial.is_whole
    assert replace(trial.recovery, duration_ms=0) == replace(report, duration_ms=0)
    second = try_start(find_store(root)).recovery
    assert second is not None
    assert second.clean_exit
    assert (second.records_scanned, second.units_rebuilt, second.index_entries_rebuilt) == (0, 0, 0)
