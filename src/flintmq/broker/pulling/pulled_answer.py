"""The answer to a pull that found messages at once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.command import answer_header_form
from flintmq.format.wire.frame import FRAME_SIZE_MAX, HeaderType, encode_json_prefix
from flintmq.format.wire.headers.pull import PullMessageResponse
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from flintmq.remoting import ReceivedRequest
    from flintmq.store.results import GetResult

_JSON: Final = HeaderType.JSON
_EXT_FORM: Final = (
    '{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"}'
)

_header_form: Final = functools.cache(functools.partial(answer_header_form, ext_form=_EXT_FORM))
"""Gives the header of an answer by code and remark, of which there are few."""


def encode_pulled_answer(
    request: ReceivedRequest, result: GetResult, code: int, remark: str, suggested_broker_id: int
) -> bytes:
    """Return the frame of an answer in the notation of its request.

    The messages are copied here, so the result can be released.
    """
    if request.header_type is _JSON:
        return encode_json_answer(request.opaque, result, code, remark, suggested_broker_id)
    header = PullMessageResponse(
        suggest_which_broker_id=suggested_broker_id,
        next_begin_offset=result.next_begin_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
    )
    return Answer(code, header, remark, parts=result.pieces).encode(request.command)


def encode_json_answer(
    opaque: int, result: GetResult, code: int, remark: str, suggested_broker_id: int
) -> bytes:
    """Return the frame of an answer in JSON.

    It is made without a header object; `PullMessageResponse` describes the header.
    """
    header = _header_form(code=code, remark=remark) % (
        suggested_broker_id,
        result.next_begin_offset,
        result.min_offset,
        result.max_offset,
        opaque,
    )
    prefix = encode_json_prefix(len(header), result.total_size, FRAME_SIZE_MAX)
    return b"".join((prefix, header, *result.pieces))
