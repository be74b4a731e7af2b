"""What a recovery found and did."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from flintmq.model.value_class import FieldEquality, NamedFields, named_fields

if TYPE_CHECKING:
    from flintmq.store.recovery.damage import LogDamage

PROBLEMS_KEPT_MAX: Final = 100
"""A log full of damage must not fill the memory with sentences about it."""


@named_fields
class RecoveryReport(FieldEquality, NamedFields):
    """What recovery found and did; kept by the store for later display."""

    clean_exit: bool = True
    start_reason: str = ""
    log_start: int = 0
    scan_start: int = 0
    log_end: int = 0
    stop_reason: str = ""
    records_scanned: int = 0
    bytes_truncated: int = 0
    damaged_ranges: list[LogDamage] = field(default_factory=list)
    """What was stepped over, at most a hundred of them; the bytes are still in the log."""
    damaged_range_count: int = 0
    damaged_bytes: int = 0
    records_behind_damage: int = 0
    """How many records were kept behind the first damage."""
    records_set_aside: int = 0
    bytes_set_aside: int = 0
    set_aside: list[str] = field(default_factory=list)
    """The files that hold what was cut off although whole records stand in it."""
    set_aside_reason: str = ""
    log_files_removed: list[str] = field(default_factory=list)
    units_cut: int = 0
    units_rebuilt: int = 0
    queues_filled: list[str] = field(default_factory=list)
    fill_start: int = -1
    index_entries_rebuilt: int = 0
    index_files_dropped: int = 0
    lost_ranges: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    """How many problems there were; the first of them are in ``problems``."""
    duration_ms: int = 0

    def add_problem(self, text: str) -> None:
        """Note something that was wrong and what was done about it."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(text)

    def add_damaged(self, found: LogDamage) -> None:
        """Note a range of the log that was stepped over."""
        self.damaged_range_count += 1
        self.damaged_bytes += found.end - found.start
        if len(self.damaged_ranges) < PROBLEMS_KEPT_MAX:
            self.damaged_ranges.append(found)

    @property
    def stepped_over(self) -> str:
        """What was stepped over, in words."""
        return (
            f"stepped over {self.damaged_bytes} damaged bytes in {self.damaged_range_count} "
            f"ranges and kept {self.records_behind_damage} records behind them"
        )

    @property
    def summary(self) -> str:
        """One line for the log."""
        parts = [
            f"{'clean' if self.clean_exit else 'abnormal'} exit",
            f"log {self.log_start}..{self.log_end}",
            f"scanned {self.records_scanned} records from {self.scan_start} ({self.start_reason})",
        ]
        if self.bytes_truncated:
            parts.append(f"cut {self.bytes_truncated} bytes ({self.stop_reason})")
        if self.damaged_range_count:
            parts.append(self.stepped_over)
        if self.records_set_aside:
            parts.append(f"set aside {self.records_set_aside} records ({self.set_aside_reason})")
        if self.units_rebuilt:
            parts.append(f"rebuilt {self.units_rebuilt} queue units")
        if self.queues_filled:
            parts.append(f"filled holes in {len(self.queues_filled)} queues")
        if self.index_entries_rebuilt:
            parts.append(f"rebuilt {self.index_entries_rebuilt} index entries")
        parts.extend(self.lost_ranges)
        parts.extend(self.problems)
        if self.problem_count > len(self.problems):
            parts.append(f"{self.problem_count - len(self.problems)} more problems")
        return "; ".join(parts) + f"; {self.duration_ms} ms"
