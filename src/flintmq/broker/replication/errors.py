"""Why replication does not go on: what a slave and a master hold against each other."""

from __future__ import annotations

from flintmq.errors import FlintError


class ReplicationError(FlintError):
    """A stream between a master and a slave had to end."""


class AheadOfMasterError(ReplicationError):
    """The slave has more of the log than its master."""

    def __init__(self, slave_end: int, master_end: int) -> None:
        self.slave_end = slave_end
        self.master_end = master_end
        super().__init__(
            f"the slave's log ends at {slave_end}, the master's at {master_end}: the slave has "
            f"{slave_end - master_end} bytes that the master lacks, and takes nothing more from it"
        )


class DivergedError(ReplicationError):
    """The logs of slave and master have different bytes at the same offset."""

    def __init__(self, offset: int, size: int) -> None:
        self.offset = offset
        super().__init__(
            f"the {size} bytes at {offset} are not those of the master: it is another log, "
            f"and the slave takes nothing from it"
        )


class OtherLogError(ReplicationError):
    """The tables of a master whose log is not known to be the own one are not taken over."""


class GapError(ReplicationError):
    """The master goes on somewhere else than where the slave's log ends."""

    def __init__(self, expected: int, offset: int) -> None:
        self.expected = expected
        self.offset = offset
        super().__init__(f"the master goes on at {offset}, the slave's log at {expected}")


class ForeignBytesError(ReplicationError):
    """What the master transfers is no log, or one with files of another size."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        super().__init__(f"at {offset} the master transfers no record: {reason}")
