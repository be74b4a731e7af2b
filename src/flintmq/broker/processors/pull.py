"""Pulling messages of a queue; a pull that finds none can wait for some."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from flintmq.broker.pulling.offset_events import offset_moved_event
from flintmq.broker.pulling.pull_admission import (
    COMMIT_OFFSET,
    SUSPEND,
    admit_pull,
    check_group_and_topic,
    suggested_broker,
    takes_long_to_compile,
)
from flintmq.broker.statistics.broker_statistics import GotQueue
from flintmq.broker.waiting.held_pull import PULL_SIZE, HeldPull
from flintmq.filter.errors import SqlFilterError
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.pull import PullMessageRequest, PullMessageResponse
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from flintmq.broker.context import BrokerContext
    from flintmq.broker.pulling.pull_admission import AdmittedPull
    from flintmq.remoting.processors import Outcome
    from flintmq.store.reading.cold_reads import ColdRange

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
_NOTHING_THERE: Final = frozenset({GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE})


class PullProcessor:
    """Serves pulls."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._keeps_offset = context.is_slave and not context.store.config.offset_check_in_slave

    def pull(self, request: Request[PullMessageRequest]) -> Outcome | Awaitable[Outcome]:
        """Answer with messages; a pull that finds none and may wait is held.

        One whose messages are on the disk only waits until they are loaded, and one that brings a
        long expression until that is compiled.
        """
        if takes_long_to_compile(self._context, request.header):
            return self._compile_and_pull(request)
        return self._pull(request)

    async def _compile_and_pull(self, request: Request[PullMessageRequest]) -> Outcome:
        header, context = request.header, self._context
        check_group_and_topic(context, header)
        with contextlib.suppress(SqlFilterError):  # It is remembered, and told by the admission.
            steps = context.filters.compile(header.subscription or "")
            await context.turns.run(steps, "SQL92 expression", request.connection)
        outcome = self._pull(request)
        return outcome if outcome is None or isinstance(outcome, Answer) else await outcome

    def _pull(self, request: Request[PullMessageRequest]) -> Outcome | Awaitable[Outcome]:
        header = request.header
        admitted = admit_pull(self._context, header)
        if header.sys_flag & COMMIT_OFFSET and not self._context.is_slave:
            self._context.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        self._context.fetched.note(
            header.consumer_group, header.topic, header.queue_id, header.queue_offset
        )
        if self._cold_ranges(header, admitted):
            return self._pull_cold(header, admitted)
        answer = self._read(header, admitted)
        if answer.code != ResponseCode.PULL_NOT_FOUND or not header.sys_flag & SUSPEND:
            return answer
        config = self._context.config
        timeout_ms = header.suspend_timeout_millis
        held = HeldPull(
            (header.topic, header.queue_id),
            header.queue_offset,
            admitted.message_filter,
            request.connection,
            answer=lambda: request.answer(self.read_after_all(header)),
            size=PULL_SIZE + len(header.subscription or ""),
        )
        timeout_ms = timeout_ms if config.long_polling else config.short_polling_ms
        return None if self._context.held.hold(held, timeout_ms) else answer

    def _cold_ranges(
        self, header: PullMessageRequest, admitted: AdmittedPull
    ) -> Sequence[ColdRange]:
        return self._context.store.reader.cold_ranges(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            admitted.message_filter,
        )

    async def _pull_cold(self, header: PullMessageRequest, admitted: AdmittedPull) -> Answer:
        await self._context.cold_loads.load(lambda: self._cold_ranges(header, admitted))
        return self.read_after_all(header)

    def read_after_all(self, header: PullMessageRequest) -> Answer:
        """Answer a pull that has waited; what it may read can have changed meanwhile."""
        try:
            admitted = admit_pull(self._context, header)
        except RefusedError as refusal:
            return Answer(refusal.code, remark=refusal.remark)
        return self._read(header, admitted)

    def _read(self, header: PullMessageRequest, admitted: AdmittedPull) -> Answer:
        result = self._context.store.get_messages(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            admitted.message_filter,
        )
        if result is None:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="store getMessage return null")
        if result.status in _NOTHING_THERE:
            moved = header.queue_offset != 0
            code = ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[result.status]
        suggested = suggested_broker(self._context.config, result, admitted.group)
        if code == ResponseCode.PULL_OFFSET_MOVED and self._keeps_offset:
            # A slave may only not have got there yet: its master knows better.
            code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, admitted.group.broker_id
        answer_header = PullMessageResponse(
            suggest_which_broker_id=suggested,
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._context.is_slave:
            self._context.store.put(offset_moved_event(self._context, header, result))
        if code != ResponseCode.SUCCESS:
            result.release()
            return Answer(code, answer_header, result.status.value)
        self._context.statistics.add_get(
            GotQueue(header.topic, header.consumer_group, header.queue_id),
            len(result),
            result.total_size,
            next_offset=result.next_begin_offset,
            micros=result.read_us,
        )
        return Answer(
            code, answer_header, result.status.value, parts=result.pieces, release=result.release
        )
