"""The survey of a log before recovery changes anything: what is good, and where the log ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from flintmq.store.config import DamagedLogPolicy
from flintmq.store.errors import StoreLoadError
from flintmq.store.recovery.damage import DamageJudge

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.log.record_walk import LogEnd, LogWalk
    from flintmq.store.recovery.damage import Doubt
    from flintmq.store.recovery.fast_walk import FastWalk
    from flintmq.store.recovery.recovery_progress import RecoveryProgress
    from flintmq.store.recovery.recovery_report import RecoveryReport
    from flintmq.store.views.queue_table import QueueTable

logger = logging.getLogger(__name__)


class _Behind(NamedTuple):
    """Records that stand behind the end of the log."""

    record_count: int = 0
    size: int = 0


class LogSurvey:
    """Checks every record of a log while the queues are still as they were found.

    So the queues can tell what is a record.  All that is written is a copy of what will be cut
    off although whole records stand in it.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        walk: LogWalk,
        fast_walk: FastWalk,
        *,
        progress: RecoveryProgress,
        files: Files,
        clock: Clock,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._walk = walk
        self._fast_walk = fast_walk
        self._progress = progress
        self._files = files
        self._clock = clock

    def run(
        self,
        start: int,
        report: RecoveryReport,
        *,
        flushed_time: int,
        machine_ran_on: bool,
        flushed_end: int,
    ) -> LogEnd:
        """Check the log from ``start`` on; return where it ends, and let ``walk`` know the way.

        Up to ``flushed_end`` and ``flushed_time`` the log was once on the disk.

        Raises:
            StoreLoadError: there is damage, and the settings say not to start with that.
            DiskFullError: there is no room to set aside what will be cut off.
        """
        walk, config = self._walk, self._config
        # What lies before the start is known to be synced; so no power failure has torn it.
        walk.torn_from = max(walk.torn_from, start)
        judge = DamageJudge(
            self._log,
            self._queues,
            walk,
            check_crc=config.check_crc_on_recover,
            flushed_time=flushed_time,
            machine_ran_on=machine_ran_on,
        )
        walk.step_over = judge.step_over
        kept_before_damage = count = 0
        for good in self._fast_walk.counts(start, check_crc=config.check_crc_on_recover):
            count += good.record_count
            if not judge.ranges:
                kept_before_damage = count
            self._progress.note("checked", count, good.end_offset, self._log.files.max_wrote)
        end = walk.end
        for damaged in judge.ranges:
            report.add_damaged(damaged)
        if judge.ranges:
            report.records_behind_damage = count - kept_before_damage
        behind = _Behind()
        if judge.doubt is not None:
            sizes = [record.size for record in judge.records_behind(judge.doubt.following)]
            behind = _Behind(len(sizes), sum(sizes))
        if config.damaged_log_policy is DamagedLogPolicy.REFUSE:
            self._refuse_damage(judge, report.records_behind_damage + behind.record_count)
            self._refuse_loss(end, flushed_end)
        if judge.doubt is not None:
            self._set_aside(judge.doubt, behind, report)
        return end

    def _refuse_damage(self, judge: DamageJudge, kept: int) -> None:
        """Raise StoreLoadError if whole records stand behind damage."""
        starts = [damaged.start for damaged in judge.ranges]
        if judge.doubt is not None:
            starts.append(judge.doubt.offset)
        if not starts:
            return
        file = self._log.files.find(starts[0])
        raise StoreLoadError(
            self._log.files.directory if file is None else file.path,
            f"damaged at {starts[0]}, and {kept} whole records follow; damagedLogPolicy=refuse "
            "does not start with that. See 'flintmq store verify --start', or set it to keep",
        )

    def _refuse_loss(self, end: LogEnd, flushed_end: int) -> None:
        """Raise StoreLoadError if the log does not reach as far as it was once on the disk."""
        if self._walk.behind_blank(end.offset) < flushed_end:
            raise StoreLoadError(
                self._log.files.directory,
                f"the log ends at {end.offset}, but was flushed up to {flushed_end}; "
                "damagedLogPolicy=refuse does not start with that. Look for missing files, or "
                "set it to keep",
            )

    def _set_aside(self, doubt: Doubt, behind: _Behind, report: RecoveryReport) -> None:
        facts = {
            "reason": doubt.reason,
            "records": behind.record_count,
            "firstRecord": doubt.following,
            "logFileSize": self._log.file_size,
            "cutAt": self._clock.now_ms(),
        }
        root = self._config.root
        from flintmq.store.recovery.set_aside import set_aside  # Few logs need it.

        made = set_aside(self._log, root, doubt.offset, facts, files=self._files)
        report.records_set_aside, report.bytes_set_aside = behind
        report.set_aside_reason = doubt.reason
        report.set_aside = [str(one.path.relative_to(root)) for one in made]


def warn_of_damage(report: RecoveryReport, root: Path) -> None:
    """Tell the operator what was damaged, where it is and what can be done."""
    if report.damaged_range_count:
        first = report.damaged_ranges[0]
        logger.warning(
            "the log is damaged: %s; first at %d (%s); the damaged messages are lost, "
            "restore them from an archive or a replica",
            report.stepped_over,
            first.start,
            first.reason,
        )
    for text in report.lost_ranges:
        logger.warning(
            "the end of the log is missing: %s; look for log files that were moved or lost, else "
            "restore the messages from an archive or a replica",
            text,
        )
    if report.set_aside:
        logger.warning(
            "cut off and set aside: messages=%d bytes=%d offset=%d files=%s reason=%s; look "
            "with 'flintmq store dump %s --set-aside', get them back with "
            "'flintmq store salvage', and delete the files when they are not needed",
            report.records_set_aside,
            report.bytes_set_aside,
            report.log_end,
            ", ".join(report.set_aside),
            report.set_aside_reason,
            root,
        )
