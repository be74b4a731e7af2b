"""Which of the requests that many brokers never get is handled by which function.

A broker has loaded all this once the first such request came: its start need not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.processors.replies import ReplyProcessor
from flintmq.broker.processors.send_back import SendBackProcessor
from flintmq.broker.processors.transactions import TransactionProcessor
from flintmq.format.wire.codes import RequestCode

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.remoting.processors import Processor


def occasional_processors(context: BrokerContext) -> dict[int, Processor]:
    """Return the processors of replies, of messages sent back and of transactions."""
    replies, back = ReplyProcessor(context), SendBackProcessor(context)
    transactions = TransactionProcessor(context)
    return {
        RequestCode.SEND_REPLY_MESSAGE: replies.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
        RequestCode.CONSUMER_SEND_MSG_BACK: back.send_back,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: transactions.resume_check,
    }
