"""Answers that machine code makes of copied messages are those that Python makes."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flintmq.broker.pulling.copied_answers import COPIED_SIZE_MAX, CopiedAnswers
from flintmq.broker.pulling.pulled_answer import encode_pulled_head
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import decode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.kernels import pulled_heads
from flintmq.kernels.checked_access import checked_copy, checked_storer
from flintmq.store.results import CopiedMessages, GetResult, GetStatus

ANSWERS: Final = CopiedAnswers()
numbers: Final = st.sampled_from([0, 1, 9, 10, 99, (1 << 63) - 1]) | st.integers(0, 1 << 62)


@given(
    size=st.sampled_from([0, 1, 300, COPIED_SIZE_MAX]),
    next_offset=numbers,
    least=numbers,
    end=numbers,
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    broker_id=st.sampled_from([0, 1, 1 << 40]),
    is_binary=st.booleans(),
)
def test_both_engines_make_the_same_answer(
    size: int,
    next_offset: int,
    least: int,
    end: int,
    opaque: int,
    broker_id: int,
    is_binary: bool,
) -> None:
    messages = bytes(number % 251 for number in range(size))
    ANSWERS.room[:size] = np.frombuffer(messages, np.uint8)
    copied = CopiedMessages(1, size, next_offset, least, end)
    frame = bytes(ANSWERS.frame_of(copied, opaque, broker_id, is_binary=is_binary))
    result = GetResult(
        GetStatus.FOUND, next_begin_offset=next_offset, min_offset=least, max_offset=end
    )
    result.take_pieces([memoryview(messages)], 0, size)
    success, found = int(ResponseCode.SUCCESS), GetStatus.FOUND.value
    head = encode_pulled_head(opaque, result, success, found, broker_id, is_binary=is_binary)
    assert frame == head + messages
    (decoded,) = FrameDecoder().frames(frame)
    command = decode_command(decoded)
    assert (command.opaque, command.body) == (opaque, messages)
    assert command.ext_fields["nextBeginOffset"] == str(next_offset)


def test_the_longest_head_fits_before_the_messages() -> None:
    """With stores that look at bounds; the smallest number is longer than any that comes."""
    least = -(1 << 63) + 1
    for is_binary in (False, True):
        table, data = ANSWERS._heads[is_binary]
        buffer = np.zeros(ANSWERS._body_at, np.uint8)
        put = checked(pulled_heads.put_pulled_head)
        start = put(buffer, len(buffer), 0, table, data, is_binary, *[least] * 4, -(1 << 31))
        copied = CopiedMessages(0, 0, least, least, least)
        frame = ANSWERS.frame_of(copied, -(1 << 31), least, is_binary=is_binary)
        assert buffer[start:].tobytes() == frame
        assert start >= 0


def checked(kernel: Callable[..., int]) -> Callable[..., int]:
    """Return the Python function that a kernel is written as, with stores that look at bounds."""
    python: FunctionType = kernel.py_func  # type: ignore[attr-defined]
    digits: FunctionType = pulled_heads._put_digits_before.py_func  # type: ignore[attr-defined]
    accesses: dict[str, Any] = {
        "put_int": checked_storer(32),
        "copy_bytes": checked_copy,
        "_put_digits_before": digits,
    }
    return FunctionType(python.__code__, {**python.__globals__, **accesses})
