"""What a connection asks of whoever owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from flintmq.format.wire.command import Command
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.half_frames import HalfFrames
    from flintmq.remoting.limits import Limits
    from flintmq.remoting.request_bytes import RequestBytes
    from flintmq.remoting.request_table import RequestTable
    from flintmq.remoting.turn_inbox import TurnInbox
    from flintmq.remoting.unread_answers import UnreadAnswers


_ConnectionT = TypeVar("_ConnectionT")


class Endpoint(Protocol[_ConnectionT]):
    """Whoever owns connections: a server or a client."""

    limits: Limits
    requests: RequestTable
    half_frames: HalfFrames[_ConnectionT] | None
    turns: FairTurns | None
    inbox: TurnInbox | None
    unread_answers: UnreadAnswers | None
    request_bytes: RequestBytes | None

    def opened(self, connection: _ConnectionT) -> None:
        """Learn of a new connection."""
        ...

    def closed(self, connection: _ConnectionT) -> None:
        """Learn that a connection has ended, for whatever reason."""
        ...

    def rejected(self, kind: str) -> int | None:
        """Learn that a connection is closed because of what its peer sent or left unread.

        Returns how many like it were not logged before this one, None if it is not logged either.
        """
        ...

    def end_of_read(self) -> None:
        """Learn that what one read brought was handled; the answers are not written yet."""
        ...

    def prepare(self, command: Command) -> None:
        """Finish a request of ours before it is sent."""
        ...
