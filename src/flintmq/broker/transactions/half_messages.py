"""Half messages: what is sent in a transaction is stored apart until it is decided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flintmq.format.properties import encode_properties
from flintmq.format.sys_flag import TRANSACTION_MASK
from flintmq.model.property_names import REAL_QID, REAL_TOPIC
from flintmq.model.topics import TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from flintmq.model.message import PutMessage


def half_of(message: PutMessage) -> PutMessage:
    """Return a message as it is stored while its transaction is undecided."""
    properties = message.properties | {
        REAL_TOPIC: message.topic,
        REAL_QID: str(message.queue_id),
    }
    return replace(
        message,
        topic=TRANS_HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=properties,
        # Unlike that of a plain message, the string of a half message keeps WAIT.
        properties_text=encode_properties(properties),
    )
