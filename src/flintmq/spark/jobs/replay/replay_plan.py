"""How far a replay has come, in a file: killed at any moment, it goes on with what is left.

The file is replaced after each batch was acknowledged as a whole.  A batch that was under way is
sent again under the same number, and its rows have the same marks, so repeats can be told.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from flintmq.settings.durable_file import replace_durably
from flintmq.spark.errors import PathError
from flintmq.spark.jobs.damages import Damages
from flintmq.spark.jobs.replay.replay_source import ReplayRange, ReplaySource

FILE_NAME: Final = "replay.json"
FILE_SIZE_MAX: Final = 64 << 20
VERSION: Final = 1


class ResumeError(PathError):
    """The file by which a job goes on belongs to something else, or is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTopic:
    """A topic that is replayed; times are milliseconds, of storing."""

    topic: str
    target: str
    message_count: int
    queue_count: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What a replay sends, and how far it has come.

    ``request`` is what the user has asked for, ``reached`` how far each log was sent, ``batch``
    the number of the next batch, ``damages`` what the logs lack.
    """

    request: Mapping[str, object]
    logs: tuple[ReplayRange, ...]
    topics: tuple[ReplayTopic, ...]
    partitions: int
    part_size: int
    write_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    reached: tuple[int, ...] = ()
    batch: int = 0
    damages: Damages = field(default_factory=Damages)

    def next_range(self, source: ReplaySource) -> tuple[int, ReplayRange] | None:
        """Return the next range and the number of its log; None at the end.

        Stores keep in step: the one of which least was sent is next.

        Raises:
            ReplayLossError: the log is not the one that was planned with.
        """
        left = [
            (at - log.start, number)
            for number, (log, at) in enumerate(zip(self.logs, self._reached(), strict=True))
            if at < log.end
        ]
        if not left:
            return None
        number = min(left)[1]
        log, at = self.logs[number], self._reached()[number]
        source.check(log)
        return number, log._replace(start=at, end=source.range_end(log, at, self.part_size))

    def _reached(self) -> tuple[int, ...]:
        return self.reached or tuple(log.start for log in self.logs)

    def after(self, number: int, log_range: ReplayRange) -> Self:
        """Return the plan after a range was sent."""
        reached = [*self._reached()]
        reached[number] = log_range.end
        return replace(self, reached=tuple(reached), batch=self.batch + 1)


class ReplayState:
    """The file in a directory; without a directory, nothing is kept."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / FILE_NAME

    def load(self, request: Mapping[str, object]) -> ReplayPlan | None:
        """Return the plan that was begun; ResumeError if it is one of another request."""
        if self._path is None or not self._path.exists():
            return None
        plan = self._read(self._path)
        if plan.request != request:
            other = sorted(
                name
                for name in plan.request.keys() | request.keys()
                if plan.request.get(name) != request.get(name)
            )
            reason = f"was begun for another replay: {', '.join(other)} differ"
            raise ResumeError(str(self._path), reason)
        return plan

    def _read(self, path: Path) -> ReplayPlan:
        if path.stat().st_size > FILE_SIZE_MAX:
            raise ResumeError(str(path), "is too large to be the state of a replay")
        try:
            members = json.loads(path.read_bytes())
            if members.pop("version") != VERSION:
                raise ResumeError(str(path), "was written by another version")
            members["logs"] = tuple(ReplayRange(*one) for one in members["logs"])
            members["topics"] = tuple(ReplayTopic(**one) for one in members["topics"])
            members["reached"] = tuple(members["reached"])
            members["damages"] = Damages.from_members(members.get("damages"))
            return ReplayPlan(**members)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ResumeError(str(path), f"cannot be understood: {error}") from error

    def save(self, plan: ReplayPlan) -> None:
        """Keep a plan."""
        if self._path is not None:
            members = {"version": VERSION, **asdict(plan)}
            replace_durably(self._path, json.dumps(members, indent=1).encode())
