"""What a job reads: stored messages, or live topics of a cluster.

A request for a job holds one of these.  Wrong values are refused when the object is made, before
Spark is started.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from flintmq.spark.live.live_options import LiveOptions, parse_batch
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.failures import JobError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInput:
    """Store directories, or patterns that name them; some jobs read an archive as well.

    Damage in a log ends the job, or is left out with ``OnCorrupt.SKIP``.  ``splits_min`` is the
    number of tasks that a scan of the log has at least, if the log is large enough for that; None
    leaves the size of splits to the data source.  ``set_aside`` reads what recovery has cut off
    the logs and set aside, instead of the logs.
    """

    paths: tuple[str, ...]
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    splits_min: int | None = None
    set_aside: bool = False

    def __post_init__(self) -> None:
        if not self.paths:
            raise JobError("a job needs at least one directory")
        if self.on_corrupt is OnCorrupt.ROW:
            raise JobError("damage has no row in a job: it fails or is left out")
        if self.splits_min is not None and self.splits_min < 1:
            raise JobError(f"splits_min is 1 or more, not {self.splits_min}")


@dataclass(frozen=True, slots=True)
class LiveInput:
    """The messages that live topics have at one moment; options of the data source name them.

    The options may hold secrets, so they are not part of the object's text.
    """

    options: Mapping[str, str] = field(repr=False)
    read: LiveOptions = field(init=False, repr=False)
    """What the options say; OptionError if one is unknown or means nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", parse_batch(self.options))


JobInput: TypeAlias = StoredInput | LiveInput
