"""Transactions: consumers see a message only if the local part of its transaction commits."""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from flintmq.client.messaging.message_decoding import decode_message
from flintmq.client.own_threads import call_in_thread, is_own_end
from flintmq.format.message_id import decode_offset_id
from flintmq.format.stored.record import decode_record
from flintmq.format.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.transaction import EndTransactionRequest
from flintmq.model.property_names import PRODUCER_GROUP, UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from flintmq.client.messaging.messages import Message, ReceivedMessage, SendResult
    from flintmq.format.wire.headers.transaction import CheckTransactionRequest
    from flintmq.remoting import Request

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")


class TransactionState(Enum):
    """How a transaction ended; UNKNOWN lets the broker ask later."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = 0


class TransactionListener(Protocol):
    """The local part of transactions.

    Both methods may be coroutine functions, or plain ones, which are called in threads of their
    own: other work of the program does not hold them up.
    """

    def execute(
        self, message: Message, argument: Any
    ) -> TransactionState | Awaitable[TransactionState]:
        """Do the local part and return a TransactionState."""
        ...

    def check(self, message: ReceivedMessage) -> TransactionState | Awaitable[TransactionState]:
        """Say how the local part ended, as a TransactionState; a broker has asked."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """Where a message of a transaction was stored, and how its local part ended."""

    sent: SendResult
    state: TransactionState


async def ask_listener(
    function: Callable[_P, TransactionState | Awaitable[TransactionState]],
    *arguments: _P.args,
    **keywords: _P.kwargs,
) -> TransactionState:
    """Call a listener and return its state; an exception or any other value means UNKNOWN."""
    task = asyncio.current_task()
    try:
        if inspect.iscoroutinefunction(function):
            state = await function(*arguments, **keywords)
        else:
            state = await call_in_thread("flintmq-listener", function, *arguments, **keywords)
    except BaseException as error:
        # SystemExit and KeyboardInterrupt of a task would end the loop.
        if is_own_end(error, task):
            raise
        logger.exception("transaction listener failed")
        return TransactionState.UNKNOWN
    if isinstance(state, TransactionState):
        return state
    logger.warning("a transaction listener returned %r, which is no TransactionState", state)
    return TransactionState.UNKNOWN


def end_header(
    group: str,
    sent: SendResult,
    state: TransactionState,
) -> EndTransactionRequest:
    """Return the header that ends the transaction of a message just sent."""
    return EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=decode_offset_id(sent.offset_message_id)[1],
        commit_or_rollback=state.value,
        from_transaction_check=False,
        msg_id=sent.message_id,
        broker_name=sent.queue.broker_name,
    )


async def answer_check(
    request: Request[CheckTransactionRequest], group: str, listener: TransactionListener | None
) -> tuple[ReceivedMessage, TransactionState, EndTransactionRequest] | None:
    """Answer a broker that asks how a transaction of ``group`` ended.

    Return message, state and answer; None if the transaction is not of this group.
    """
    record = decode_record(request.body)
    properties = record.properties
    if listener is None or properties.get(PRODUCER_GROUP) != group:
        return None
    message = decode_message(record, "")
    state = await ask_listener(listener.check, message)
    asked = request.header
    header = EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=asked.tran_state_table_offset,
        commit_log_offset=asked.commit_log_offset,
        commit_or_rollback=state.value,
        from_transaction_check=True,
        msg_id=properties.get(UNIQ_KEY) or asked.msg_id or message.offset_message_id,
        transaction_id=asked.transaction_id,
    )
    request.connection.tell(RequestCode.END_TRANSACTION, header)
    return message, state, header
