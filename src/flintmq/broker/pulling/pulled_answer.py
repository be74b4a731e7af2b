"""The answer to a pull that found messages at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.wire.command import encode_answer_head
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.pull import PullMessageResponse
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from flintmq.remoting import ReceivedRequest
    from flintmq.store.results import GetResult

_JSON: Final = HeaderType.JSON


def encode_pulled_answer(
    request: ReceivedRequest,
    result: GetResult,
    *,
    code: int,
    remark: str,
    suggested_broker_id: int,
) -> bytes:
    """Return the frame of an answer in the notation of its request.

    In JSON it is made without a header object; `PullMessageResponse` describes the header.  The
    messages are copied here, so the result can be released.
    """
    if request.header_type is not _JSON:
        header = PullMessageResponse(
            suggest_which_broker_id=suggested_broker_id,
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        return Answer(code, header, remark, parts=result.pieces).encode(request.command)
    head = encode_answer_head(
        code=code,
        opaque=request.opaque,
        remark=remark,
        ext_json=(
            f'{{"suggestWhichBrokerId":"{suggested_broker_id}",'
            f'"nextBeginOffset":"{result.next_begin_offset}",'
            f'"minOffset":"{result.min_offset}","maxOffset":"{result.max_offset}"}}'
        ),
        body_size=result.total_size,
    )
    return b"".join((head, *result.pieces))
