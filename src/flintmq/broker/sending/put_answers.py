"""The code and the remark of an answer, by how the put ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.format.wire.headers.send import SendAnswer
    from flintmq.store.results import PutResult

PUT_CODES: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGECACHE_BUSY: ResponseCode.SYSTEM_ERROR,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
    PutStatus.LMQ_QUEUE_COUNT_EXCEEDED: ResponseCode.SYSTEM_ERROR,
}


def put_remark(result: PutResult) -> str | None:
    """Return why a put was refused or is less durable than promised; None if all is well."""
    if result.ok:
        return None
    tag = "[PC_SYNCHRONIZED]" if result.status is PutStatus.OS_PAGECACHE_BUSY else ""
    return f"{tag}{result.status.value}: {result.reason}"


def less_than_promised(frames: bytes, result: PutResult, shared: SendAnswer) -> Iterator[bytes]:
    """Yield the answers to sends that are less durable than promised, or lost.

    ``frames`` are what the answers would have been.  Where a send is stored after all, its answer
    still tells where.
    """
    code, remark = PUT_CODES[result.status], put_remark(result)
    for frame in FrameDecoder().frames(frames):
        answer = decode_command(frame)
        answer.code, answer.remark = code, remark
        if not result.status.stored:
            answer.ext_fields, answer.empty_ext_fields = shared.encode(), True
        yield encode_command(answer)
