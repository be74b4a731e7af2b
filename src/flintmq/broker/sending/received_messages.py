"""Messages and batches as clients send them, made ready for the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from flintmq.broker.hosts import packed_peer
from flintmq.model.message import MessageBatch, PutMessage

if TYPE_CHECKING:
    from flintmq.format.wire.headers.send import SendMessageRequest
    from flintmq.remoting import Request

_Kind = TypeVar("_Kind", PutMessage, MessageBatch)


def received_message(
    kind: type[_Kind],
    request: Request[SendMessageRequest],
    *,
    topic: str,
    queue_id: int,
    sys_flag: int,
    properties: dict[str, str],
    text: bytes,
    store_host: bytes,
) -> _Kind:
    """Return the message or batch of a request; ``text`` is the properties text to store."""
    header = request.header
    return kind(
        topic=topic,
        queue_id=queue_id,
        body=request.body,
        properties=properties,
        properties_text=text,
        flag=header.flag,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=packed_peer(request.connection),
        store_host=store_host,
        reconsume_times=header.reconsume_times or 0,
    )
