"""The settings of a job's Spark session, without Spark itself: the command line reads them too."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flintmq.spark.runtime.failures import JobError

DEFAULT_MASTER: Final = "local[*]"
PARALLELISM_MAX: Final = 100_000
_SHUFFLES_PER_CORE: Final = 8
_ZONE: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")

_ALWAYS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
_LOCAL: Final = {
    # Nobody but this machine has to do with a local job.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # On other machines this package comes with the job, too late for a daemon.
    "spark.python.daemon.module": "flintmq.spark.python_daemon",
}

_TASKS: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a job whose tasks are Python alone: there the virtual machine only hands them out, and
without its optimising compiler it starts with half the processor time."""


class SessionError(JobError):
    """A Spark session cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the user says about the session.  ``conf`` has the last word over every setting here."""

    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    parallelism: int | None = None
    log_file: Path | None = None
    app_name: str = "flintmq"
    zone: str = "UTC"
    """Where times are of that name no zone, by name or as an offset such as +01:00."""

    def __post_init__(self) -> None:
        if self.parallelism is not None and not 1 <= self.parallelism <= PARALLELISM_MAX:
            raise SessionError(f"parallelism is 1 to {PARALLELISM_MAX}, not {self.parallelism}")
        _ = self.time_zone

    @property
    def spark_master(self) -> str:
        """The master with the number of local cores asked for."""
        if self.parallelism is not None and self.master == DEFAULT_MASTER:
            return f"local[{self.parallelism}]"
        return self.master

    @property
    def time_zone(self) -> tzinfo:
        """The zone of the session; SessionError if there is none of that name."""
        name = self.conf.get(_ZONE, self.zone)
        offset = _OFFSET.fullmatch(name)
        if offset is not None:
            shift = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
            return timezone(-shift if offset[1] == "-" else shift)
        try:
            return UTC if name in ("UTC", "Z") else ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise SessionError(
                f"there is no time zone {name!r}; write Europe/Berlin, UTC or +01:00"
            ) from None

    def spark_conf(self) -> dict[str, str]:
        """Return every setting of the session."""
        settings = _ALWAYS | {_ZONE: self.zone}
        shuffles = self.parallelism
        if is_local(self.master):
            settings |= _LOCAL
            # Spark's 200 are many for one machine; small partitions are joined as it goes.
            shuffles = shuffles or _SHUFFLES_PER_CORE * (os.cpu_count() or 1)
        if shuffles is not None:
            settings["spark.sql.shuffle.partitions"] = str(shuffles)
        return settings | dict(self.conf)

    def task_conf(self) -> dict[str, str]:
        """Return every setting for a job whose tasks are Python alone."""
        return _TASKS | self.spark_conf()


def is_local(master: str | None) -> bool:
    """Whether the executors of a master run inside the driver, and so see what it sees."""
    return master is not None and master.partition("[")[0] == "local"
