"""From how a put ended to the code and remark of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.codes import ResponseCode
from flintmq.store.results import PutStatus

if TYPE_CHECKING:
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
    """Return why a put was refused, or what of its promise did not hold; None if all is well."""
    if result.ok:
        return None
    tag = "[PC_SYNCHRONIZED]" if result.status is PutStatus.OS_PAGECACHE_BUSY else ""
    return f"{tag}{result.status.value}: {result.reason}"
