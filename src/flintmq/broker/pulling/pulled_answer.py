"""The answer to a pull that found messages at once, without the messages.

It is made without a header object; `PullMessageResponse` describes the header.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import (
    RESPONSE_FLAG,
    Command,
    answer_header_form,
    encode_header,
)
from flintmq.format.wire.frame import (
    FRAME_SIZE_MAX,
    HeaderType,
    encode_json_prefix,
    encode_prefix,
)
from flintmq.format.wire.headers.pull import PullMessageResponse
from flintmq.store.results import GetStatus

if TYPE_CHECKING:
    from flintmq.store.results import GetResult

_NAMES: Final = tuple(
    PullMessageResponse.wire_name(field)
    for field in ("suggest_which_broker_id", "next_begin_offset", "min_offset", "max_offset")
)
_EXT_FORM: Final = "{" + ",".join(f'"{name}":"%d"' for name in _NAMES) + "}"

_SIZE: Final = struct.Struct(">i")
_BINARY_OPAQUE_AT: Final = 5
_SIZES: Final = tuple(map(_SIZE.pack, range(24)))
"""The size of a number's text, as it stands before it."""
_BROKER_KEY, _NEXT_KEY, _LEAST_KEY, _END_KEY = (
    struct.pack(">H", len(name)) + name.encode() for name in _NAMES
)


def encode_pulled_head(
    opaque: int,
    result: GetResult,
    code: int,
    remark: str,
    suggested_broker_id: int,
    *,
    is_binary: bool,
) -> bytes:
    """Return what stands before the messages in the frame of an answer.

    It is in the notation of the request.
    """
    next_offset, least, end = result.next_begin_offset, result.min_offset, result.max_offset
    if not is_binary:
        numbers = suggested_broker_id, next_offset, least, end, opaque
        header = _json_form(code, remark) % numbers
        return encode_json_prefix(len(header), result.total_size, FRAME_SIZE_MAX) + header
    one, two = b"%d" % suggested_broker_id, b"%d" % next_offset
    three, four = b"%d" % least, b"%d" % end
    ext = b"".join(
        (
            *(_BROKER_KEY, _SIZES[len(one)], one, _NEXT_KEY, _SIZES[len(two)], two),
            *(_LEAST_KEY, _SIZES[len(three)], three, _END_KEY, _SIZES[len(four)], four),
        )
    )
    before, behind = _binary_start(code, remark)
    header = b"".join((before, _SIZE.pack(opaque), behind, _SIZE.pack(len(ext)), ext))
    prefix = encode_prefix(
        HeaderType.ROCKETMQ,
        header_size=len(header),
        body_size=result.total_size,
        frame_size_max=FRAME_SIZE_MAX,
    )
    return prefix + header


def json_pieces() -> list[bytes]:
    """Return what stands around the numbers of the header that tells of messages, in JSON.

    The numbers are those of the ext fields and then the opaque one.
    """
    return _json_form(int(ResponseCode.SUCCESS), GetStatus.FOUND.value).split(b"%d")


def binary_pieces() -> tuple[bytes, ...]:
    """Return the same of a binary header, which begins with the opaque number.

    Behind that is the size of the ext fields, then their numbers.
    """
    before, behind = _binary_start(int(ResponseCode.SUCCESS), GetStatus.FOUND.value)
    return before, behind, _BROKER_KEY, _NEXT_KEY, _LEAST_KEY, _END_KEY, b""


@functools.cache
def _json_form(code: int, remark: str) -> bytes:
    """Return the header of answers, of which there are few kinds."""
    return answer_header_form(code=code, remark=remark, ext_form=_EXT_FORM)


@functools.cache
def _binary_start(code: int, remark: str) -> tuple[bytes, bytes]:
    """Return what stands before and behind the opaque number, up to the size of the ext fields."""
    answer = Command(
        code=code,
        opaque=0,
        flag=RESPONSE_FLAG,
        remark=remark,
        serialize_type=HeaderType.ROCKETMQ,
        empty_ext_fields=True,
    )
    header = encode_header(answer)
    behind_opaque = _BINARY_OPAQUE_AT + _SIZE.size
    return header[:_BINARY_OPAQUE_AT], header[behind_opaque : -_SIZE.size]
