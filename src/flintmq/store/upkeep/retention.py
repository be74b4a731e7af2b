"""Retention: which log files go, when, and what a full disk means for writers.

Every ten seconds it is looked how full the disks are; above the warning ratio writes are refused
until there is room again.  A *run*, as often, deletes up to ten log files, oldest first, never the
last one, never one that is not durably in the queues yet, and none in which messages wait for the
time that they name (these are put again first):

    why there is a run                         what it may delete
    the hour is one of ``deleteWhen``          files past their time
    asked for by hand, in the next 20 runs     files past their time
    a disk above ``diskMaxUsedSpaceRatio``     files past their time
    any of these, and a disk above the         any file, unless a setting forbids it
    clean-forcibly ratio

The time of a file is that of its last modification, so copying or touching a store changes what
expires.  Consume queues and the key index follow when the log has lost its oldest file.

Removing a large file and syncing its directory can take long, so ``clean_log`` may run in a thread
of its own: log files are made to be deleted beside their readers.  Queues and index are not; they
follow in ``follow``, which belongs to the owner.  ``step`` does both, for an owner without threads.
"""

from __future__ import annotations

import datetime
import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.store.errors import StoreError
from flintmq.store.files.mapped_file_queue import DELETE_COUNT_MAX
from flintmq.store.running_flags import RunningFlag, RunningFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files
    from flintmq.store.log.commit_log import CommitLog

logger = logging.getLogger(__name__)

FIRST_RUN_MS: Final = 60_000
"""How long after the start the first run comes."""

FIRST_CHECK_MS: Final = 1_000
CHECK_INTERVAL_MS: Final = 10_000
"""How often the disks are measured between runs."""

MANUAL_RUN_COUNT: Final = 20
"""In how many runs a deletion asked for by hand takes part."""

FOLLOW_QUEUES: Final = 64
"""Queues that are looked at in one call: some microseconds each."""

_HOUR_MS: Final = 3_600_000
_MISSING: Final = -1.0


class DiskRatios(NamedTuple):
    """How full the disks of a store are, from 0 to 1; -1 where a directory is missing."""

    logs: Mapping[Path, float]
    queues: float

    @property
    def log(self) -> float:
        """The ratio of the emptiest log directory: the next file can go there."""
        return min(self.logs.values())


class RetentionResult(NamedTuple):
    """What one run has deleted, and why it ran."""

    reason: str
    deleted: tuple[Path, ...]
    unexpired: bool
    """Whether it was allowed to delete files before their time."""


class _Timer:
    """Tells when something periodic is due; a wall clock that was set back makes it due."""

    def __init__(self, first_at_ms: int, interval_ms: int) -> None:
        self.at_ms = first_at_ms
        self._interval_ms = interval_ms

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self.at_ms or self.at_ms - now_ms > max(self._interval_ms, FIRST_RUN_MS)

    def restart(self, now_ms: int) -> None:
        self.at_ms = now_ms + self._interval_ms


class _Run:
    """A run under way."""

    def __init__(self, reason: str, *, unexpired: bool) -> None:
        self.reason = reason
        self.unexpired = unexpired
        self.deleted: list[Path] = []


class Retention:
    """Deletes what has expired and watches the disks.  It decides; it has no thread.

    Call ``clean_log`` whenever ``due`` says so (more often does no harm) from any one thread,
    and ``follow`` from the owner's; or only ``step`` from the owner's.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        *,
        dispatched: Callable[[], int],
        delete_views: Callable[[], Iterator[bool]],
        keeps: Callable[[int], bool],
        flags: RunningFlags,
        files: Files,
        clock: Clock,
    ) -> None:
        """Describe the rules.

        ``dispatched`` tells up to where the log has reached the views durably, ``delete_views``
        lets one after the other follow a log that begins later than before.  ``keeps`` tells
        whether messages wait before an offset that are not delivered yet.
        """
        self._config = config
        """After how long a log file may go; whoever owns the store may change it at any time."""
        self._log = log
        self._dispatched = dispatched
        self._delete_views = delete_views
        self._keeps = keeps
        self._kept_path: Path | None = None
        """The file that could not go because messages wait in it, if that was told."""
        self._flags = flags
        self._files = files
        self._queue_directory = config.root / "consumequeue"
        now_ms = clock.now_ms()
        interval_ms = config.clean_resource_interval_ms
        self._run_timer = _Timer(now_ms + FIRST_RUN_MS, interval_ms)
        self._check_timer = _Timer(now_ms + FIRST_CHECK_MS, CHECK_INTERVAL_MS)
        self._hung_timer = _Timer(
            now_ms + config.redelete_hanged_interval_ms, config.redelete_hanged_interval_ms
        )
        self._delete_timer = _Timer(now_ms, config.delete_log_interval_ms)
        self._run: _Run | None = None
        self._manual_runs = 0
        self._followed_offset = 0
        self._views: Iterator[bool] | None = None
        """Queues and index, while they are following the log."""
        self._views_rest_until = 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self.last_result: RetentionResult | None = None
        """What the last run did."""

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other limits and hours from now on."""
        self._config = config

    # -- the owner's part --------------------------------------------------------------------

    def request_manual_delete(self) -> None:
        """Let the next runs delete expired files at any hour."""
        self._manual_runs = MANUAL_RUN_COUNT

    def follow(self) -> bool:
        """Let some queues, and the index, follow a log that has lost files.

        Return whether more of them may have to.  A call looks at a few queues and deletes files of
        one, and `deleteConsumeQueueFilesInterval` passes before the next one loses any.
        """
        views = self._views
        if views is None:
            log_min = self._log.min_offset
            if log_min <= self._followed_offset:
                return False
            self._followed_offset = log_min
            views = self._views = self._delete_views()
        if self._views_rest_until > self._clock.monotonic():
            return True
        for _ in range(FOLLOW_QUEUES):
            has_deleted = next(views, None)
            if has_deleted is None:
                self._views = None
                break
            if has_deleted:
                interval_s = self._config.delete_queue_interval_ms / 1000
                self._views_rest_until = self._clock.monotonic() + interval_s
                break
        return True

    def step(self, now_ms: int) -> RetentionResult | None:
        """Do what is due, log and views; return the result of a run that ended with it."""
        result = self.clean_log(now_ms)
        while self.follow():
            self._views_rest_until = 0.0
        return result

    # -- when --------------------------------------------------------------------------------

    def due(self, now_ms: int) -> bool:
        """Whether there is anything to do now."""
        timer = self._run_timer if self._run is None else self._delete_timer
        return timer.is_due(now_ms) or self._check_timer.is_due(now_ms)

    def next_due_ms(self) -> int:
        """Return when there will be something to do."""
        timer = self._run_timer if self._run is None else self._delete_timer
        return min(timer.at_ms, self._check_timer.at_ms)

    # -- the log's part ----------------------------------------------------------------------

    def clean_log(self, now_ms: int) -> RetentionResult | None:
        """Measure the disks, begin a run or delete its next file, as is due.

        At most one file goes in one call, and ``deleteCommitLogFilesInterval`` passes between two
        of a run.  Return the result of a run that ended with this call.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._check_timer.is_due(now_ms):
                self.check_disk()
                self._check_timer.restart(now_ms)
            if self._run is None:
                if not self._run_timer.is_due(now_ms):
                    return None
                self._run_timer.restart(now_ms)
                self._run = self._begin(now_ms)
            elif not self._delete_timer.is_due(now_ms):
                return None
            return self._go_on(now_ms) if self._run is not None else None
        finally:
            self._lock.release()

    def _begin(self, now_ms: int) -> _Run | None:
        if self._hung_timer.is_due(now_ms):
            self._hung_timer.restart(now_ms)
            self._retry_hung()
        reasons = []
        hour = _local_hour(now_ms)
        if hour in self._config.delete_when:
            reasons.append(f"hour {hour:02d}")
        full, unexpired = self._find_full(self.check_disk())
        if full:
            reasons.append(full)
        if self._manual_runs:
            self._manual_runs -= 1
            reasons.append(f"asked for by hand, {self._manual_runs} runs left")
        return _Run("; ".join(reasons), unexpired=unexpired) if reasons else None

    def _find_full(self, ratios: DiskRatios) -> tuple[str, bool]:
        """Return why space must be made, empty if not, and whether by deleting unexpired files."""
        config = self._config
        may_force = config.clean_forcibly and not config.refuse_rather_than_delete
        limit = config.disk_max_used_ratio / 100
        unexpired = False
        for path, ratio in self._weighed(ratios):
            unexpired = unexpired or (may_force and ratio > config.disk_clean_forcibly_ratio)
            if ratio < 0:
                return f"{path}: not measurable", unexpired
            if ratio > limit:
                return _usage_text(path, ratio, f"files are deleted above {limit:.0%}"), unexpired
        return "", unexpired

    def _weighed(self, ratios: DiskRatios) -> list[tuple[Path, float]]:
        """Return the two disks that count, in RocketMQ's order: the log's, then the queues'."""
        emptiest = min(ratios.logs, key=lambda path: ratios.logs[path])
        return [(emptiest, ratios.log), (self._queue_directory, ratios.queues)]

    def _go_on(self, now_ms: int) -> RetentionResult | None:
        """Delete the next file of the run under way; end the run when there is none."""
        run = self._run
        assert run is not None
        path = self._delete_oldest(unexpired=run.unexpired)
        if path is not None:
            run.deleted.append(path)
            self._delete_timer.restart(now_ms)
            if len(run.deleted) < DELETE_COUNT_MAX:
                return None
        self._run = None
        self.last_result = result = RetentionResult(
            run.reason, tuple(run.deleted), unexpired=run.unexpired
        )
        if run.deleted:
            logger.info(
                "log files deleted: count=%d unexpired_too=%s log_min_offset=%d reason=%s",
                len(run.deleted),
                run.unexpired,
                self._log.min_offset,
                run.reason,
            )
            self.check_disk()
        return result

    def _delete_oldest(self, *, unexpired: bool) -> Path | None:
        """Delete the oldest log file if the rules allow it; return where it was."""
        files = self._log.files
        first = files.first
        # What is not in the views yet, or could be lost from them, would leave a hole in them.
        if first is None or first.end_offset > self._dispatched():
            return None
        if self._keeps(first.end_offset) and not self._must_go(first.path, unexpired=unexpired):
            return None
        try:
            deleted = files.delete_expired_by_time(
                self._config.file_reserved_hours * _HOUR_MS,
                forced_after_ms=self._config.destroy_forcibly_interval_ms,
                immediate=unexpired,
                limit=1,
            )
        except StoreError:
            logger.exception("log file not deleted durably: file=%s", first.path)
            return None
        return first.path if deleted else None

    def _must_go(self, path: Path, *, unexpired: bool) -> bool:
        """Whether a file goes although messages wait in it: only where nothing can be written.

        Otherwise they are delivered, or put again at the end of the log, and a later run deletes
        the file.
        """
        if unexpired and not self._flags.writable:
            logger.warning("log file with waiting messages deleted, the disk is full: %s", path)
            return True
        if path != self._kept_path:
            self._kept_path = path
            logger.info("log file kept for messages that wait in it: file=%s", path)
        return False

    def _retry_hung(self) -> None:
        """Remove a file that an earlier run left because somebody read it."""
        try:
            self._log.files.retry_delete_first(
                forced_after_ms=self._config.destroy_forcibly_interval_ms
            )
        except StoreError:
            logger.exception("log file not deleted durably")

    # -- disks -------------------------------------------------------------------------------

    def ratios(self) -> DiskRatios:
        """Measure how full the disks are."""
        return DiskRatios(
            {path: self._ratio(path) for path in self._config.effective_commit_log_paths},
            self._ratio(self._queue_directory),
        )

    def _ratio(self, path: Path) -> float:
        try:
            usage = self._files.usage(path)
        except StoreError as error:
            logger.warning("disk not measured: reason=%s", error)
            return _MISSING
        return usage.used_ratio if usage is not None else _MISSING

    def check_disk(self) -> DiskRatios:
        """Measure the disks; refuse writes while one is too full, and spare full directories.

        RocketMQ's check forgets the disk of the queues, so that its flag goes up and down with
        whoever looked last.  Here either disk raises it, and it falls when both have room.
        """
        ratios = self.ratios()
        config = self._config
        self._log.files.placement.full = frozenset(
            path for path, ratio in ratios.logs.items() if ratio > config.disk_clean_forcibly_ratio
        )
        warning = config.disk_warning_ratio
        for path, ratio in self._weighed(ratios):
            if ratio > warning:
                reason = _usage_text(path, ratio, f"writes are refused above {warning:.0%}")
                self._flags.set(RunningFlag.DISK_FULL, reason)
                return ratios
        self._flags.clear(RunningFlag.DISK_FULL)
        return ratios

    def runtime_info(self) -> dict[str, str]:
        """Return the ratios by the names a Java broker reports them under."""
        ratios = self.ratios()
        info = {f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.logs.items()}
        info["commitLogDiskRatio"] = str(ratios.log)
        info["consumeQueueDiskRatio"] = str(ratios.queues)
        return info


def _usage_text(path: Path, ratio: float, rule: str) -> str:
    return f"{path}: {ratio:.0%} of the disk used, {rule}"


def _local_hour(now_ms: int) -> int:
    return datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC).astimezone().hour
