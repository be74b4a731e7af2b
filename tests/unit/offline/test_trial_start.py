"""A start that is tried on private files writes as much to them as a real one would to the disk."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.offline.trial.private_files import PrivateFiles
from flintmq.offline.trial.trial_start import try_start_of
from flintmq.store.files.interface import Files
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.mapped_file import DETACHED_SIZE_MIN
from flintmq.store.message_store import MessageStore
from flintmq.testing import ManualClock
from tests.kits.store.offline_stores import START_MS, fingerprint, message, small_config

COUNT: Final = 2 * DETACHED_SIZE_MIN // UNIT_SIZE


def test_a_queue_that_is_rebuilt_at_length_is_synced_in_a_trial_too(tmp_path: Path) -> None:
    """Before so much is synced its pages are let go, which private files could not be asked for."""
    config = small_config(
        tmp_path, commit_log_file_size=4 << 20, consume_queue_file_size=2 * COUNT * UNIT_SIZE
    )
    with MessageStore.open(config, clock=ManualClock(START_MS), background=False) as store:
        for number in range(COUNT):
            assert store.put(message(number, queues=1, properties={})).ok
    shutil.rmtree(tmp_path / "consumequeue")
    before = fingerprint(tmp_path)
    trial = try_start_of(config, files=LocalFiles(), clock=ManualClock(START_MS))
    assert trial.recovery is not None
    assert trial.recovery.units_rebuilt == COUNT
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("is_new", [True, False])
def test_private_pages_that_are_let_go_keep_what_they_hold(tmp_path: Path, *, is_new: bool) -> None:
    """The kernel would forget them: behind a private map is only what the file held before."""
    path, size = tmp_path / "file", 2 * DETACHED_SIZE_MIN
    if not is_new:
        path.write_bytes(b"before" + bytes(size - 6))
    files: Files = PrivateFiles(LocalFiles())
    region = files.create(path, size) if is_new else files.open(path)
    region.expect_fast_growth(0)
    region.view[:] = b"after " * (size // 6) + b"after "[: size % 6]
    region.detach_pages(0, size)
    region.sync()
    assert bytes(region.view[: 2 * 6]) == b"after after "
    region.close()
    assert files.read(path, limit=6) == b"after "
