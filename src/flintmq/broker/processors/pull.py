"""Fetching messages of a queue, at once or when there are some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.held_pulls import HeldPull
from flintmq.broker.offset_events import offset_moved_event
from flintmq.broker.pull_terms import COMMIT_OFFSET, SUSPEND, checked_terms, suggested_broker
from flintmq.format.codes import ResponseCode
from flintmq.format.headers.pull import PullMessageRequest, PullMessageResponse
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.store.results import GetStatus

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.broker.pull_terms import PullTerms

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

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def pull(self, request: Request[PullMessageRequest]) -> Answer | None:
        """Answer with messages; a pull that finds none and may wait is held."""
        header = request.header
        terms = checked_terms(self._parts, header)
        if header.sys_flag & COMMIT_OFFSET:
            self._parts.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        answer = self._read(header, terms)
        if answer.code != ResponseCode.PULL_NOT_FOUND or not header.sys_flag & SUSPEND:
            return answer
        config = self._parts.config
        timeout_ms = header.suspend_timeout_millis
        held = HeldPull(
            (header.topic, header.queue_id),
            header.queue_offset,
            terms.message_filter,
            answer=lambda: request.answer(self._read_after_all(header)),
            is_gone=lambda: request.connection.is_closed,
        )
        timeout_ms = timeout_ms if config.long_polling else config.short_polling_ms
        return None if self._parts.held.hold(held, timeout_ms) else answer

    def _read_after_all(self, header: PullMessageRequest) -> Answer:
        """Answer a pull that was held; what it may read can have changed meanwhile."""
        try:
            terms = checked_terms(self._parts, header)
        except RefusedError as refusal:
            return Answer(refusal.code, remark=refusal.remark)
        return self._read(header, terms)

    def _read(self, header: PullMessageRequest, terms: PullTerms) -> Answer:
        result = self._parts.store.get_messages(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            terms.message_filter,
        )
        if result is None:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="store getMessage return null")
        if result.status in _NOTHING_THERE:
            moved = header.queue_offset != 0
            code = ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[result.status]
        answer_header = PullMessageResponse(
            suggest_which_broker_id=suggested_broker(self._parts.config, result, terms.group),
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._parts.store.put(offset_moved_event(self._parts, header, result))
        if code != ResponseCode.SUCCESS:
            result.release()
            return Answer(code, answer_header, result.status.value)
        self._parts.statistics.add_get(
            header.topic, header.consumer_group, len(result), result.total_size
        )
        return Answer(
            code, answer_header, result.status.value, parts=result.parts, release=result.release
        )
