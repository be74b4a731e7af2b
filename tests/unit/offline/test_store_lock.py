"""The lock of a store directory, as tools see it."""

from pathlib import Path

import pytest

from flintmq.offline.errors import OutputError, StoreInUseError
from flintmq.offline.store_lock import LOCK_NAME, hold_directory, refuse_running
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import START_MS, make_store, small_config


def test_a_store_at_rest_is_not_refused_and_nothing_is_written(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 3)
    (root / LOCK_NAME).unlink()
    refuse_running(root)
    assert not (root / LOCK_NAME).exists()


def test_asking_does_not_take_the_lock_from_the_store_that_holds_it(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 3)
    with MessageStore.open(small_config(root), clock=ManualClock(START_MS), background=False):
        for _ in range(2):
            with pytest.raises(StoreInUseError):
                refuse_running(root)
            with pytest.raises(StoreInUseError), hold_directory(root):
                pass
    refuse_running(root)


def test_a_held_directory_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), hold_directory(tmp_path):
        raise KeyError
    with hold_directory(tmp_path), pytest.raises(StoreInUseError):
        refuse_running(tmp_path)
    refuse_running(tmp_path)


def test_a_place_where_no_lock_can_be_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(OutputError), hold_directory(tmp_path):
        pass
