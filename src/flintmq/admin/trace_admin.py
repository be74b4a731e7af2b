"""The trace of a message: what producers and consumers have written about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.scan_admin import ScanAdmin
from flintmq.client.errors import TopicNotExistError
from flintmq.client.searching.message_search import END_OF_TIME_MS, PAGE_COUNT
from flintmq.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FIELD_END: Final = "\x01"
_LINE_END: Final = "\x02"
_PUB_MIN: Final = 12
_SUB_BEFORE_MIN: Final = 8
_SUB_AFTER_MIN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One thing that a client did with a message."""

    kind: str
    """Pub for a send; Sub for a consumption, of which begin and end are brought together."""
    message_id: str
    group: str
    topic: str | None
    client: str | None
    happened_at_ms: int | None
    cost_ms: int | None
    status: str
    retry_times: int | None = None


class TraceAdmin(ScanAdmin):
    """Operations on message traces."""

    async def message_trace(
        self,
        message_id: str,
        *,
        topic: str = TRACE_TOPIC,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        count_max: int = PAGE_COUNT,
    ) -> tuple[list[TraceStep], bool]:
        """Return what was done with a message, in order, and whether that is all of it."""
        try:
            found = await self.messages_by_key(
                topic, message_id, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max
            )
        except TopicNotExistError as error:
            raise MissingError(
                f"no broker has the topic {topic} for traces; traceTopicEnable makes it"
            ) from error
        lines = [
            (line, message.born_host)
            for message in found.messages
            for line in message.body.decode("utf-8", "replace").split(_LINE_END)
            if line
        ]
        steps = sorted(_steps(message_id, lines), key=lambda one: one.happened_at_ms or 0)
        return steps, found.is_complete


def _steps(message_id: str, lines: Sequence[tuple[str, str]]) -> Iterator[TraceStep]:
    """Yield sends as they are, and consumptions of which begin and end have one request id."""
    begun: dict[str, TraceStep] = {}
    ended: dict[str, list[str]] = {}
    for line, host in lines:
        fields = line.split(_FIELD_END)
        if fields[0] == "Pub" and len(fields) >= _PUB_MIN and fields[5] == message_id:
            yield _sent(fields, host)
        elif fields[0] == "SubBefore" and len(fields) >= _SUB_BEFORE_MIN:
            if fields[5] == message_id:
                begun[fields[4]] = _begun(fields, host)
        elif fields[0] == "SubAfter" and len(fields) >= _SUB_AFTER_MIN and fields[2] == message_id:
            ended[fields[1]] = fields
    for request_id, step in begun.items():
        fields = ended.get(request_id, [])
        yield TraceStep(
            kind=step.kind,
            message_id=step.message_id,
            group=step.group,
            topic=step.topic,
            client=step.client,
            happened_at_ms=step.happened_at_ms,
            cost_ms=_number(fields[3]) if fields else None,
            status=_status(fields[4]) if fields else "unknown",
            retry_times=step.retry_times,
        )


def _sent(fields: Sequence[str], host: str) -> TraceStep:
    is_ok = fields[13] if len(fields) > 13 else fields[12] if len(fields) > 12 else "true"
    return TraceStep(
        kind="Pub",
        message_id=fields[5],
        group=fields[3],
        topic=fields[4],
        client=fields[14] if len(fields) > 14 else host,
        happened_at_ms=_number(fields[1]),
        cost_ms=_number(fields[10]),
        status=_status(is_ok),
    )


def _begun(fields: Sequence[str], host: str) -> TraceStep:
    return TraceStep(
        kind="Sub",
        message_id=fields[5],
        group=fields[3],
        topic=None,
        client=fields[8] if len(fields) > 8 else host,
        happened_at_ms=_number(fields[1]),
        cost_ms=None,
        status="unknown",
        retry_times=_number(fields[6]),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _status(text: str) -> str:
    return "success" if text == "true" else "failed"
