"""Plain pulls, answered on a short way.

A consumer pulls a queue again and again with the same fields, save the offsets.  Such a pull is
recognised by the header fields as they came, without a header object: one whose fields were seen
before has passed all checks, and goes by the terms that were found then, for as long as nothing
has changed that they depend on.  Everything else goes to the processors: what is new, what is to
be refused, and what asks for a place where the queue has no message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flintmq.broker.pull_terms import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    checked_terms,
    suggested_broker,
)
from flintmq.broker.pulled_answer import encode_pulled_answer
from flintmq.format.codes import RequestCode, ResponseCode
from flintmq.format.errors import FormatError
from flintmq.format.headers.pull import PullMessageRequest
from flintmq.format.remoting_errors import LocalProtocolError
from flintmq.remoting import RefusedError
from flintmq.store.results import GetStatus

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.broker.pull_terms import PullTerms
    from flintmq.remoting import Connection
    from flintmq.remoting.connection import Gatherer

LANE_COUNT_MAX: Final = 8192
"""Kinds of pulls that are remembered; clients can make up as many as they like."""

_PULL: Final = int(RequestCode.PULL_MESSAGE)
_REPEATING: Final = (
    "consumerGroup",
    "topic",
    "queueId",
    "maxMsgNums",
    "sysFlag",
    "suspendTimeoutMillis",
    "subscription",
    "subVersion",
    "expressionType",
)
"""The fields that pulls of one kind have in common: all but the offsets."""
_DIGITS_MAX: Final = 18
_OPAQUE_END: Final = 1 << 31
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_FOUND: Final = GetStatus.FOUND
_FOUND_REMARK: Final = _FOUND.value
_ONCE_MORE: Final = frozenset({GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})
"""Nothing was found, but there is more behind it."""


class Lane(NamedTuple):
    """A kind of pull that has passed all checks."""

    group: str
    topic: str
    queue_id: int
    count_max: int
    terms: PullTerms
    commits: bool
    is_registered: bool
    """Whether the subscription is the one of the group's heartbeats, which may change it."""
    message_model: str | None
    """How the group consumed when the lane was made; groups can be refused one of the ways."""


class PullLanes:
    """Takes plain pulls out of what a connection brings, and passes sends on to who gathers them.

    A pull is answered at once, but behind the sends before it.
    """

    def __init__(self, parts: BrokerParts, sends: Gatherer) -> None:
        self._parts = parts
        self._sends = sends
        self._lanes: dict[tuple[str | None, ...], Lane] = {}
        self._based_on: tuple[object, object, object] = (None, None, None)
        """What the lanes depend on: settings and tables, which are replaced when they change."""

    def take(
        self, connection: Connection, members: dict[str, Any], header: bytes, body: bytes
    ) -> bool:
        """Take a request over if it is a plain send or pull."""
        if members.get("code") != _PULL:
            return self._sends.take(connection, members, header, body)
        self._sends.finish()
        try:
            opaque, ext_fields = members["opaque"], members["extFields"]
            offset_text, commit_text = ext_fields["queueOffset"], ext_fields["commitOffset"]
            if (
                members["flag"] != 0
                or opaque.__class__ is not int
                or not -_OPAQUE_END <= opaque < _OPAQUE_END
                or not _are_digits(offset_text, commit_text)
                or (lane := self._lane_of(ext_fields)) is None
            ):
                return False
            offset, commit_offset = int(offset_text), int(commit_text)
        except (KeyError, TypeError, AttributeError, ValueError):
            return False  # Fields are missing, or are of other types: the processor says which.
        frame = self._pull(lane, opaque, offset, commit_offset)
        if frame is None:
            return False
        connection.send(frame)
        return True

    def finish(self) -> None:
        """Handle the sends that were gathered; pulls do not wait."""
        self._sends.finish()

    # -- lanes -------------------------------------------------------------------------------

    def _lane_of(self, ext_fields: dict[str, str]) -> Lane | None:
        """Return the lane of a pull, made now if need be; None if it is not plain."""
        parts = self._parts
        config, topics, groups = self._based_on
        if (
            config is not parts.config
            or topics is not parts.topics.version
            or groups is not parts.groups.version
        ):
            self._lanes.clear()
            self._based_on = parts.config, parts.topics.version, parts.groups.version
        kind = tuple(map(ext_fields.get, _REPEATING))
        lane = self._lanes.get(kind)
        if lane is None or (lane.is_registered and not self._is_still_registered(lane)):
            lane = self._new_lane(kind, ext_fields)
        return lane

    def _is_still_registered(self, lane: Lane) -> bool:
        group = self._parts.consumers.get(lane.group)
        return (
            group is not None
            and group.subscriptions.get(lane.topic) is lane.terms.subscription
            and group.message_model == lane.message_model
        )

    def _new_lane(self, kind: tuple[str | None, ...], ext_fields: dict[str, str]) -> Lane | None:
        self._lanes.pop(kind, None)
        if any(value.__class__ is not str for value in kind if value is not None):
            return None
        try:
            header = PullMessageRequest.decode(ext_fields)
            terms = checked_terms(self._parts, header)
        except (FormatError, RefusedError):
            return None
        is_registered = not header.sys_flag & SUBSCRIPTION
        group = self._parts.consumers.get(header.consumer_group) if is_registered else None
        if len(self._lanes) >= LANE_COUNT_MAX:
            self._lanes.clear()
        lane = self._lanes[kind] = Lane(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.max_msg_nums,
            terms,
            bool(header.sys_flag & COMMIT_OFFSET),
            is_registered,
            None if group is None else group.message_model,
        )
        return lane

    # -- pulling -----------------------------------------------------------------------------

    def _pull(self, lane: Lane, opaque: int, offset: int, commit_offset: int) -> bytes | None:
        """Return the frame of the answer, None if the pull is not plain after all."""
        group, topic, queue_id, count_max, terms, commits, _, _ = lane
        parts = self._parts
        if commits:
            parts.offsets.commit(group, topic, queue_id, commit_offset)
        result = parts.store.get_inside(topic, queue_id, offset, count_max, terms.message_filter)
        if result is None:
            return None
        with result:
            status = result.status
            if status is _FOUND:
                code, remark = _SUCCESS, _FOUND_REMARK
            elif status in _ONCE_MORE:
                code, remark = int(ResponseCode.PULL_RETRY_IMMEDIATELY), status.value
            else:
                return None  # It may have to wait.
            suggested = suggested_broker(parts.config, result, terms.group)
            try:
                frame = encode_pulled_answer(
                    result, code=code, remark=remark, opaque=opaque, suggested_broker_id=suggested
                )
            except LocalProtocolError:
                return None  # No frame can hold it; the processor says so.
            if status is _FOUND:
                parts.statistics.add_get(topic, group, len(result), result.total_size)
        return frame


def _are_digits(one: str, other: str) -> bool:
    """Whether two texts are numbers that are not negative and fit 64 bits."""
    both = one + other
    return both.isascii() and both.isdigit() and len(one) <= _DIGITS_MAX >= len(other)
