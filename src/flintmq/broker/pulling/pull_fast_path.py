"""The fast path of pulls: plain ones are answered without a header object.

A consumer pulls a queue again and again with the same fields, save the offsets.  Such a pull is
recognised by the fields of its header: one whose fields were seen before goes by the admission of
that time (`flintmq.broker.pulling.pull_admission`), for as long as nothing has changed that the
admission depends on.  One that asks for the end of its queue, and may wait, is held; when a
message has come it goes by the same admission.  Everything else is left to the processor: what is
new, what is to be refused, and what asks for another offset at which the queue has no message.
"""

from __future__ import annotations

import functools
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flintmq.broker.pulling.known_pull import KnownPull
from flintmq.broker.pulling.pull_admission import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    admit_pull,
    suggested_broker,
    takes_long_to_compile,
)
from flintmq.broker.pulling.pull_loading import COMPILED_PROGRAM, load_compiled_pulls
from flintmq.broker.pulling.pulled_answer import encode_pulled_head
from flintmq.broker.statistics.broker_statistics import GotQueue
from flintmq.broker.waiting.held_pull import PULL_SIZE, HeldPull
from flintmq.format.errors import FormatError
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.pull import PullMessageRequest
from flintmq.format.wire.remoting_errors import LocalProtocolError
from flintmq.kernels.background_load import LoadOnDemand
from flintmq.remoting import RefusedError
from flintmq.remoting.processors import send_answer
from flintmq.store.read_cursor import ReadCursor
from flintmq.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.broker.context import BrokerContext
    from flintmq.broker.pulling.compiled_pulls import CompiledPulls
    from flintmq.model.subscription import Subscription
    from flintmq.remoting import Answer, ReceivedRequest
    from flintmq.remoting.request_table import RequestSource

KNOWN_PULL_COUNT_MAX: Final = 8192
"""Kinds of pulls that are remembered; clients can make up as many as they like."""

KNOWN_TEXT_LENGTH_MAX: Final = 1024
"""Characters of all fields of a kind that is remembered, and of its subscription."""

COMPILED_ASK_COUNT: Final = 2048
"""Pulls of known kinds after which machine code is loaded, if it was not loaded ahead."""
ANSWERED_SIZE_MAX: Final = 2 << 20
"""Bytes of answers that machine code's pulls of one turn lead to; the rest of it goes one by one,
which ends with the time of a turn."""
LARGE_ANSWER_SIZE: Final = 64 << 10
"""Bytes of an answer that leaves at once; a smaller one is copied and leaves with others."""
LEARNED_COUNT_MAX: Final = 64
LEARN_PERIOD_S: Final = 1.0
"""So many headers are looked at in so long a time: clients can make up headers as they like."""
SHOWN_COUNT_MAX: Final = 4
SHOWN_PERIOD_S: Final = 60.0
"""Of pulls of one kind so many headers are looked at in so long a time."""
OFFERED_READS: Final = 64
"""Reads of a connection that are offered to machine code after one that has brought a pull."""

_REQUIRED: Final = (
    "consumerGroup",
    "topic",
    "queueId",
    "maxMsgNums",
    "sysFlag",
    "suspendTimeoutMillis",
    "subVersion",
)
_KIND_NAMES: Final = (*_REQUIRED, "subscription", "expressionType")
_required_of: Final = itemgetter(*_REQUIRED)
"""Takes the fields that every pull has; pulls of one kind have them in common.

Besides these a kind has the subscription and its type, which may be missing.  The offsets are what
pulls of one kind differ in.
"""
_DIGITS_MAX: Final = 18
_JSON: Final = HeaderType.JSON
_PULL: Final = int(RequestCode.PULL_MESSAGE)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_FOUND: Final = GetStatus.FOUND
_FOUND_REMARK: Final = _FOUND.value
_ONCE_MORE: Final = frozenset({GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})
"""Nothing was found, but there is more behind it."""


class HeldRequest(NamedTuple):
    """What it takes to answer a pull in JSON later."""

    opaque: int
    began: float
    """When it came."""


class PullFastPath:
    """The bulk handler of pulls.  It answers a pull at once, so it never has anything gathered."""

    def __init__(
        self, context: BrokerContext, read_after_all: Callable[[PullMessageRequest], Answer]
    ) -> None:
        """Use ``read_after_all`` for what has waited and is not plain any more."""
        self._context = context
        self._read_after_all = read_after_all
        self._known: dict[tuple[str | None, ...], KnownPull] = {}
        self._based_on: tuple[object, object, object] = (None, None, None)
        """What admissions depend on: settings and tables, which are replaced when they change."""
        self._compiled = LoadOnDemand(
            load_compiled_pulls,
            ask_count=COMPILED_ASK_COUNT if context.store.config.machine_code else 0,
            program=COMPILED_PROGRAM,
        )
        self._learn_after = self._forget_shown_after = 0.0
        self._learned_count = 0
        self._shown: dict[tuple[str | None, ...], int] = {}
        """How often headers of a kind were looked at lately."""

    def gather(self, connection: RequestSource, request: ReceivedRequest) -> bool:
        """Answer a pull if it is plain; return whether it was."""
        fields = request.raw_fields
        try:
            offset_text, commit_text = fields["queueOffset"], fields["commitOffset"]
            if (
                request.flag
                or not _are_digits(offset_text, commit_text)
                or (known := self._known_pull(fields)) is None
            ):
                return False
            offset, commit_offset = int(offset_text), int(commit_text)
        except (KeyError, TypeError, AttributeError, ValueError):
            return False  # Fields are missing, or are of other types: the processor says which.
        compiled = self._compiled.get()
        if compiled is not None:
            connection.pull_reads = OFFERED_READS
            if request.header and self._shown.get(known.kind, 0) < SHOWN_COUNT_MAX:
                self._show(compiled, request, known)
        if known.commits:
            self._context.offsets.commit(known.group, known.topic, known.queue_id, commit_offset)
        is_binary = request.header_type is not _JSON
        if not is_binary and self._hold(known, connection, request.opaque, offset):
            return True
        if not self._answer(known, connection, request.opaque, offset, is_binary=is_binary):
            return False
        self._context.fetched.note(known.group, known.topic, known.queue_id, offset)
        return True

    def _show(self, compiled: CompiledPulls, request: ReceivedRequest, known: KnownPull) -> None:
        """Let machine code learn what headers of such pulls look like."""
        now = self._context.clock.monotonic()
        if now >= self._forget_shown_after:
            self._forget_shown_after = now + SHOWN_PERIOD_S
            self._shown.clear()
        if now >= self._learn_after:
            self._learn_after, self._learned_count = now + LEARN_PERIOD_S, 0
            if not compiled.has_room:
                compiled.forget()
        if self._learned_count < LEARNED_COUNT_MAX:
            self._learned_count += 1
            if len(self._shown) < KNOWN_PULL_COUNT_MAX:
                self._shown[known.kind] = self._shown.get(known.kind, 0) + 1
            compiled.learn(request.header_type, request.header, known)

    @property
    def is_ready(self) -> bool:
        """Whether `take` has machine code, by which even a single pull costs less."""
        return self._compiled.loaded is not None

    def take(
        self, connection: RequestSource, data: bytes, size_max: int = ANSWERED_SIZE_MAX
    ) -> tuple[int, int]:
        """Answer pulls of known headers at the beginning of a read.

        Return how many bytes those pulls were, and how many their answers.  At a pull that is not
        plain after all, or behind ``size_max`` bytes of answers, the rest is left to `gather`.
        """
        compiled, context = self._compiled.loaded, self._context
        self._forget_if_changed()
        if compiled is None or compiled.is_empty:
            return 0, 0
        if context.store.dispatcher.has_waiting and not context.dispatches_later:
            # What the reads below would enter into their queues may be what others wait for.
            context.dispatch()
        pulls, end = compiled.walk(data)
        found_count, size_left = 0, size_max
        for number, offset, at, commit_offset, opaque, notation in pulls:
            known, is_binary, is_held, size = compiled.pulls[number], notation != 0, False, 0
            if (
                size_left > 0
                and connection.has_room
                and (not known.is_registered or self._is_still_registered(known))
            ):
                size = self._answer_copied(
                    compiled, known, connection, opaque, offset, is_binary=is_binary
                )
                if size:
                    found_count += 1
                elif is_binary or not (is_held := self._hold(known, connection, opaque, offset)):
                    size = self._answer(known, connection, opaque, offset, is_binary=is_binary)
            if not size and not is_held:
                end = at
                break
            if known.commits:
                context.offsets.commit(known.group, known.topic, known.queue_id, commit_offset)
            if size:
                context.fetched.note(known.group, known.topic, known.queue_id, offset)
                size_left -= size
        if found_count:
            context.latencies.note(_PULL, _SUCCESS, context.latencies.began, found_count)
        connection.pull_reads = OFFERED_READS if end else connection.pull_reads - 1
        return end, size_max - size_left

    def finish(self) -> None:
        """Do nothing: every pull was answered when it came."""

    # -- recognising -------------------------------------------------------------------------

    def _known_pull(self, fields: Mapping[str, Any]) -> KnownPull | None:
        """Return the kind of a pull, learned now if need be; None if it is not plain."""
        self._forget_if_changed()
        kind = (*_required_of(fields), fields.get("subscription"), fields.get("expressionType"))
        known = self._known.get(kind)
        if known is None or (known.is_registered and not self._is_still_registered(known)):
            known = self._learn(kind, fields)
        return known

    def _forget_if_changed(self) -> None:
        """Forget all kinds if something has changed that admissions depend on."""
        context = self._context
        based_on = context.config, context.topics.version, context.groups.version
        # Compared by identity first: what has not been replaced is equal at once.
        if based_on != self._based_on:
            self._known.clear()
            self._shown.clear()
            if (compiled := self._compiled.loaded) is not None:
                compiled.forget()
            self._based_on = based_on

    def _is_still_registered(self, known: KnownPull) -> bool:
        group = self._context.consumers.get(known.group)
        return (
            group is not None
            and group.subscriptions.get(known.topic) is known.admitted.subscription
            and group.message_model == known.message_model
        )

    def _learn(self, kind: tuple[Any, ...], fields: Mapping[str, Any]) -> KnownPull | None:
        """Have a new kind of pull admitted; return None if it is refused."""
        self._known.pop(kind, None)
        if any(value.__class__ is not str for value in kind if value is not None):
            return None
        try:
            header = PullMessageRequest.decode(fields)
            if takes_long_to_compile(self._context, header):
                return None  # Next time it is known.
            admitted = admit_pull(self._context, header)
        except (FormatError, RefusedError):
            return None
        is_registered = not header.sys_flag & SUBSCRIPTION
        group = self._context.consumers.get(header.consumer_group) if is_registered else None
        known = KnownPull(
            kind=kind,
            based_on=self._based_on,
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            count_max=header.max_msg_nums,
            admitted=admitted,
            commits=bool(header.sys_flag & COMMIT_OFFSET) and not self._context.is_slave,
            hold_ms=header.suspend_timeout_millis if header.sys_flag & SUSPEND else None,
            held_size=PULL_SIZE + len(header.subscription or ""),
            is_registered=is_registered,
            got_queue=GotQueue(header.topic, header.consumer_group, header.queue_id),
            cursor=ReadCursor(header.topic, header.queue_id),
            message_model=None if group is None else group.message_model,
        )
        if _text_length(kind, admitted.subscription) <= KNOWN_TEXT_LENGTH_MAX:
            if len(self._known) >= KNOWN_PULL_COUNT_MAX:
                self._known.clear()
            self._known[kind] = known
        return known

    # -- pulling -----------------------------------------------------------------------------

    def _answer(
        self,
        known: KnownPull,
        connection: RequestSource,
        opaque: int,
        offset: int,
        *,
        is_binary: bool = False,
        held: HeldRequest | None = None,
    ) -> int:
        """Answer a pull; return the bytes of the answer, 0 if the pull is not plain after all."""
        admitted, context = known.admitted, self._context
        result = context.store.get_messages(
            known.topic,
            known.queue_id,
            offset,
            known.count_max,
            admitted.message_filter,
            only_ready=True,
        )
        if result is None:
            return 0
        with result:
            status = result.status
            if status is _FOUND:
                code, remark = _SUCCESS, _FOUND_REMARK
            elif status in _ONCE_MORE:
                code, remark = int(ResponseCode.PULL_RETRY_IMMEDIATELY), status.value
            else:
                return 0  # It may have to wait.
            suggested = suggested_broker(context.config, result, admitted.group)
            try:
                head = encode_pulled_head(
                    opaque, result, code, remark, suggested, is_binary=is_binary
                )
            except LocalProtocolError:
                return 0  # No frame can hold it; the processor says so.
            connection.send_pieces((head, *result.pieces))
            if status is _FOUND:
                context.statistics.add_get(
                    known.got_queue,
                    len(result),
                    result.total_size,
                    next_offset=result.next_begin_offset,
                    micros=result.read_us,
                )
        if held is not None:
            self._note_held(held, code)
        else:
            context.latencies.note(_PULL, code, context.latencies.began)
        return len(head) + result.total_size

    def _answer_copied(
        self,
        compiled: CompiledPulls,
        known: KnownPull,
        connection: RequestSource,
        opaque: int,
        offset: int,
        *,
        is_binary: bool = False,
    ) -> int:
        """Answer with a copy of the messages, by machine code; return their bytes.

        It is 0 if they are not plain, are filtered, or are not there.
        """
        context, admitted = self._context, known.admitted
        if admitted.message_filter is not None:
            return 0
        now = context.clock.monotonic
        began = now()
        copied = context.store.copy_messages(
            known.cursor, offset, known.count_max, compiled.answers.room
        )
        if copied is None:
            return 0
        micros = int((now() - began) * 1_000_000)
        suggested = admitted.group.broker_id if context.config.slave_read else 0
        frame = compiled.answers.frame_of(copied, opaque, suggested, is_binary=is_binary)
        if len(frame) < LARGE_ANSWER_SIZE:
            connection.send(bytes(frame))
        else:
            connection.send_pieces((frame,))
        count, size, next_offset, _, _ = copied
        context.store.statistics.record_get(count, micros)
        context.statistics.add_get(
            known.got_queue, count, size, next_offset=next_offset, micros=micros
        )
        return size

    def _answer_known(
        self, known: KnownPull, connection: RequestSource, held: HeldRequest, offset: int
    ) -> bool:
        """Answer a pull that has waited; False if it is not plain any more."""
        compiled = self._compiled.loaded
        if compiled is not None and self._answer_copied(
            compiled, known, connection, held.opaque, offset
        ):
            self._note_held(held, _SUCCESS)
            return True
        return self._answer(known, connection, held.opaque, offset, held=held) > 0

    def _note_held(self, held: HeldRequest, code: int) -> None:
        self._context.latencies.note(_PULL, code, held.began, is_long_polling=True)

    def _waits_at(self, known: KnownPull, offset: int) -> bool:
        """Whether a pull may wait, and asks for the end of its queue."""
        return known.hold_ms is not None and self._context.store.ends_at(
            known.topic, known.queue_id, offset
        )

    def _hold(self, known: KnownPull, connection: RequestSource, opaque: int, offset: int) -> bool:
        """Have a pull in JSON wait if it may, and its queue ends where it asks."""
        if known.hold_ms is None or not self._waits_at(known, offset):
            return False
        context, config = self._context, self._context.config
        later = HeldRequest(opaque, context.latencies.began)
        held = HeldPull(
            (known.topic, known.queue_id),
            offset,
            known.admitted.message_filter,
            connection,
            answer=functools.partial(self._answer_held, known, connection, later, offset),
            size=known.held_size,
        )
        hold_ms = known.hold_ms if config.long_polling else config.short_polling_ms
        if not context.held.hold(held, hold_ms, counts_refusal=False):
            return False  # The processor says so.
        context.store.statistics.record_get(0, 0)
        context.fetched.note(known.group, known.topic, known.queue_id, offset)
        return True

    def _answer_held(
        self, known: KnownPull, connection: RequestSource, request: HeldRequest, offset: int
    ) -> None:
        """Answer a pull that has waited; what it may read can have changed meanwhile."""
        self._forget_if_changed()
        is_known = known.based_on is self._based_on and (
            not known.is_registered or self._is_still_registered(known)
        )
        if is_known and self._answer_known(known, connection, request, offset):
            return
        named = zip(_KIND_NAMES, known.kind, strict=True)
        fields = {name: text for name, text in named if text is not None}
        fields |= {"queueOffset": str(offset), "commitOffset": "0"}
        answer = self._read_after_all(PullMessageRequest.decode(fields))
        self._note_held(request, answer.code)
        send_answer(connection, Command(code=_PULL, opaque=request.opaque), answer)


def _are_digits(one: str, other: str) -> bool:
    """Whether two texts are numbers that are not negative and fit 64 bits."""
    both = one + other
    return both.isascii() and both.isdigit() and len(one) <= _DIGITS_MAX >= len(other)


def _text_length(kind: tuple[str | None, ...], subscription: Subscription) -> int:
    """Return the characters that a kind keeps; a heartbeat may have brought the subscription."""
    return (
        sum(map(len, filter(None, kind)))
        + len(subscription.expression)
        + sum(map(len, subscription.tags))
        + len(subscription.codes)
    )
