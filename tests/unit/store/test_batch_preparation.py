"""A batch is made ready in steps of a bounded size, and refused as it is when put in one go."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.model.message import MessageBatch
from flintmq.store.append_group import batch_items
from flintmq.store.append_group.batch_items import is_large_batch
from flintmq.store.append_group.sends import AppendGroup, Sends, SendTarget
from flintmq.store.appending.batch_preparation import (
    BATCH_COUNT_MAX,
    STEP_COUNT_MAX,
    STEP_SIZE_MAX,
    PreparedBatch,
)
from flintmq.store.appending.group_appender import NotAppended
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult, PutStatus
from tests.kits.counted_steps import counted
from tests.kits.store.plain_store import opened_without_machine_code

HOST: Final = bytes((127, 0, 0, 1, 0, 0, 0, 1))
TINY: Final = BatchItem(0, b"x", b"")


def opened(root: Path) -> AbstractContextManager[MessageStore]:
    return opened_without_machine_code(root, log_file_size=16 << 20)


def as_batch(body: bytes, **more: Any) -> MessageBatch:
    values: dict[str, Any] = {
        "topic": "T",
        "queue_id": 0,
        "properties": {},
        "born_timestamp": 1,
        "born_host": HOST,
        "store_host": HOST,
    }
    return MessageBatch(body=body, **(values | more))


def test_a_batch_of_16000_messages_is_prepared_in_as_many_steps_as_it_takes(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        ready, steps = counted(store.prepare_batch(as_batch(encode_batch([TINY] * 16_000))))
        assert isinstance(ready, PreparedBatch)
        assert steps >= 16_000 // STEP_COUNT_MAX
        assert store.log.end_offset == 0, "nothing has its place yet"
        result = store.put_prepared(ready)
        assert (result.status, result.message_count) == (PutStatus.PUT_OK, 16_000)
        store.dispatch()
        assert store.max_offset_in_queue("T", 0) == 16_000


def test_few_large_messages_are_prepared_in_steps_by_their_bytes(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        body = encode_batch([BatchItem(0, bytes(STEP_SIZE_MAX), b"")] * 20)
        _, steps = counted(store.prepare_batch(as_batch(body)))
        assert steps >= 20


GOOD: Final = encode_batch([TINY] * 3)


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (b"", {}),
        (GOOD[:-1], {}),
        (encode_batch([TINY] * (BATCH_COUNT_MAX + 1)), {}),
        (bytes(5 << 20), {}),
        (encode_batch([TINY, BatchItem(0, b"", b"p" * 32_767), TINY]), {"properties": {"a": "b"}}),
        (GOOD, {"queue_id": -1}),
        (GOOD, {"properties": {"DELAY": "3"}}),
        (GOOD, {"properties": {"TIMER_DELIVER_MS": "3"}}),
        (GOOD, {"sys_flag": 4}),
        (GOOD, {"topic": "t" * 128}),
        (GOOD, {"topic": "../T"}),
        (GOOD, {"born_timestamp": 1 << 70}),
        (encode_batch([BatchItem(0, bytes(3 << 20), b"")] * 2), {}),
    ],
    ids=lambda value: "",
)
def test_what_is_refused_in_one_go_is_refused_in_steps_with_the_same_words(
    tmp_path: Path, body: bytes, more: dict[str, Any]
) -> None:
    with opened(tmp_path / "a") as at_once, opened(tmp_path / "b") as in_steps:
        expected = at_once.put_batch(as_batch(body, **more))
        assert not expected.ok
        found, _ = counted(in_steps.prepare_batch(as_batch(body, **more)))
        if isinstance(found, PreparedBatch):
            found = in_steps.put_prepared(found)
        assert (found.status, found.reason) == (expected.status, expected.reason)
        assert in_steps.log.end_offset == 0


def test_a_closed_store_refuses_to_prepare(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        pass
    found, steps = counted(store.prepare_batch(as_batch(GOOD)))
    assert isinstance(found, PutResult)
    assert (found.status, steps) == (PutStatus.SERVICE_NOT_AVAILABLE, 0)


def test_a_batch_is_large_by_bytes_and_number() -> None:
    most = batch_items.LARGE_BATCH_COUNT
    small = BatchItem(0, bytes(20), b"k\x01v\x02")
    assert not is_large_batch(encode_batch([small] * most))
    assert is_large_batch(encode_batch([small] * (most + 1)))
    assert not is_large_batch(encode_batch([TINY] * (batch_items.LARGE_BATCH_SIZE // 23)))
    assert is_large_batch(encode_batch([TINY] * (batch_items.LARGE_BATCH_SIZE // 23 + 1)))
    assert not is_large_batch(encode_batch([BatchItem(0, bytes(1 << 20), b"")] * 3))


def test_the_body_of_no_batch_is_not_large() -> None:
    for fill in (b"\0", b"\xff", b"\x7f"):
        body = fill * (1 << 20)
        assert is_large_batch(body) == (fill == b"\0")


@pytest.mark.parametrize("is_shared", [False, True])
def test_in_python_a_large_batch_is_no_group_where_others_are_to_be_served(
    tmp_path: Path, is_shared: bool
) -> None:
    with opened(tmp_path) as store:
        store.put_batch(as_batch(GOOD))
        store.dispatch()
        store.dispatcher.run_limit.is_stepwise = is_shared
        target = SendTarget("T", 0, is_batch=True)
        large = encode_batch([TINY] * 5000)
        sends = Sends([target] * 2, [1] * 2, [GOOD, large], [b""] * 2, [HOST] * 2, b"")
        group = store.append_group(sends, HOST)
        if is_shared:
            assert group == NotAppended([1], is_special=True)
        else:
            assert isinstance(group, AppendGroup)
