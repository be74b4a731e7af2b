"""The answer to a pull that was read at once, made without a header object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.command import encode_answer_head

if TYPE_CHECKING:
    from flintmq.store.results import GetResult


def encode_pulled_answer(
    result: GetResult, *, code: int, remark: str, opaque: int, suggested_broker_id: int
) -> bytes:
    """Return the frame of an answer in JSON; `PullMessageResponse` describes its header.

    The messages are copied here, so the result can be released.
    """
    head = encode_answer_head(
        code=code,
        opaque=opaque,
        remark=remark,
        ext_json=(
            f'{{"suggestWhichBrokerId":"{suggested_broker_id}",'
            f'"nextBeginOffset":"{result.next_begin_offset}",'
            f'"minOffset":"{result.min_offset}","maxOffset":"{result.max_offset}"}}'
        ),
        body_size=result.total_size,
    )
    return b"".join((head, *result.parts))
