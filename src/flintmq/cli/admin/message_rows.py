"""Messages as rows: all that a broker keeps of one, and its body as text or base64."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from flintmq.cli.output.text import local_time
from flintmq.client.errors import UnreadableBodyError, UsageError

if TYPE_CHECKING:
    from flintmq.client.messaging.messages import ReceivedMessage

SHORT_COLUMNS: Final = (
    *("broker", "queueId", "queueOffset", "messageId", "tag", "keys", "storedAt", "bodySize"),
)
BODY_COLUMNS: Final = (*SHORT_COLUMNS, "body")


def message_row(
    message: ReceivedMessage, *, charset: str = "utf-8", with_body: bool = True
) -> dict[str, object]:
    """Return all that is known of a message; without a body only its size is told."""
    row: dict[str, object] = {
        "topic": message.queue.topic,
        "broker": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "bornAt": local_time(message.born_timestamp),
        "bornHost": message.born_host,
        "storedAt": local_time(message.store_timestamp),
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": dict(message.properties),
    }
    return row | _body(message, charset, with_body=with_body)


def _body(message: ReceivedMessage, charset: str, *, with_body: bool) -> dict[str, object]:
    try:
        body = message.body
    except UnreadableBodyError:
        return {
            "bodySize": message.stored_body_size,
            "bodyEncoding": "stored-base64",
            **({"body": base64.b64encode(message.stored_body).decode()} if with_body else {}),
        }
    if not with_body:
        return {"bodySize": len(body)}
    try:
        return {"bodySize": len(body), "bodyEncoding": charset, "body": body.decode(charset)}
    except UnicodeDecodeError:
        text = base64.b64encode(body).decode()
        return {"bodySize": len(body), "bodyEncoding": "base64", "body": text}


def known_charset(name: str) -> str:
    """Return the name of a charset; UsageError if there is none of that name."""
    try:
        "".encode(name)
    except LookupError:
        raise UsageError(f"there is no charset {name!r}") from None
    return name
