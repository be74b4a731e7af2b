"""The end of transactions: half messages become messages, or are forgotten.

A half message that is decided gets an *op record*, whose body is its queue offset.  What has none
is asked about: its producer is told to say how the transaction ended, again and again up to a
limit.  A half message that was asked about is put again at the end of its queue, so that the
queue of half messages can always move on.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.broker.record_copies import copy_of
from flintmq.format.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from flintmq.model.message import PutMessage
from flintmq.model.property_names import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    WAIT,
)
from flintmq.model.topics import TRANS_OP_HALF_TOPIC

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.format.stored.record import Record

logger = logging.getLogger(__name__)

OP_TAG: Final = "d"


def final_message(record: Record, half_offset: int) -> PutMessage:
    """Return the message that a committed half message becomes."""
    properties = record.properties
    return replace(
        copy_of(record, properties),
        topic=properties.get(REAL_TOPIC, ""),
        queue_id=int(properties.get(REAL_QID, "0")),
        sys_flag=record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
        prepared_transaction_offset=half_offset,
    )


def op_record(context: BrokerContext, half: Record) -> PutMessage:
    """Return the record that says that a half message is decided."""
    return PutMessage(
        topic=TRANS_OP_HALF_TOPIC,
        queue_id=half.queue_id,
        body=str(half.queue_offset).encode(),
        properties={WAIT: "true", TAGS: OP_TAG},
        born_timestamp=context.clock.now_ms(),
        born_host=context.store_host,
        store_host=context.store_host,
    )
