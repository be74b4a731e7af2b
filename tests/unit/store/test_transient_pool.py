import gc
import logging

import pytest

from flintmq.store.errors import StoreError
from flintmq.store.files.transient_pool import TransientPool


def test_buffers_are_lent_until_there_are_none() -> None:
    pool = TransientPool(2, 4096)
    first, second = pool.borrow(), pool.borrow()
    assert first is not None
    assert second is not None
    assert first is not second
    assert (len(first), pool.free_count, pool.borrow()) == (4096, 0, None)
    pool.give_back(first)
    assert pool.free_count == 1
    assert pool.borrow() is first


def test_the_buffer_returned_last_is_lent_first() -> None:
    pool = TransientPool(3, 4096)
    buffer = pool.borrow()
    assert buffer is not None
    pool.give_back(buffer)
    assert pool.borrow() is buffer


def test_a_buffer_is_returned_once_and_only_to_its_pool() -> None:
    pool = TransientPool(1, 4096)
    buffer = pool.borrow()
    assert buffer is not None
    for wrong in (memoryview(bytearray(4096)), buffer[:]):
        with pytest.raises(StoreError, match="not lent"):
            pool.give_back(wrong)
    pool.give_back(buffer)
    with pytest.raises(StoreError, match="not lent"):
        pool.give_back(buffer)
    assert pool.free_count == 1


def test_few_free_buffers_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    pool = TransientPool(5, 4096)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            pool.borrow()
        assert not caplog.records
        pool.borrow()
    assert "low: free=1 buffers=5" in caplog.text


def test_a_closed_pool_lends_nothing_and_leaves_lent_buffers_alone() -> None:
    pool = TransientPool(2, 4096)
    lent = pool.borrow()
    assert lent is not None
    pool.close()
    assert pool.borrow() is None
    lent[0] = 7
    gc.collect()
    assert lent[0] == 7
