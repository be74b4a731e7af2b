"""The body that tells how far delayed messages are delivered (GET_ALL_DELAY_OFFSET).

``{"offsetTable":{level:offset}}`` is RocketMQ's.  Where messages wait for a time that they name, a
further member says how far those are; a Java slave writes the text down as it is, and passes over
what it does not know.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from flintmq.format.wire.bodies.dialect import BodyError, Members

WAITING_MEMBER: Final = "deliverAt"
_OFFSETS: Final = "offsetTable"


class DelayProgress(NamedTuple):
    """How far a broker has delivered delayed messages."""

    levels: Mapping[int, int]
    waiting: Any = None
    """Of messages that name a time, as their state file has it; None if there were none."""

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read the body of an answer; BodyError if it is none."""
        members = Members(value, "delay offsets")
        try:
            levels = {int(level): int(one) for level, one in members.table(_OFFSETS).items()}
        except (TypeError, ValueError) as error:
            raise BodyError("delay offsets that are no numbers") from error
        return cls(levels, value.get(WAITING_MEMBER))

    def to_json(self) -> dict[str, Any]:
        """Return the body of an answer."""
        body: dict[str, Any] = {_OFFSETS: self.levels}
        return body if self.waiting is None else body | {WAITING_MEMBER: self.waiting}
