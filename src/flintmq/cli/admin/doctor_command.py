"""``flintmq admin doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.admin.diagnosis import DiagnosisLevel, DoctorLimits
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin

_LIMITS = DoctorLimits()


@admin_command("doctor")
@click.option("--all", "show_all", is_flag=True, help="Show what is well, too.")
@click.option("--strict", is_flag=True, help="End with 1 for warnings, too.")
@click.option("--max-lag", type=click.IntRange(min=0), default=_LIMITS.lag, show_default=True)
@click.option(
    "--max-gap",
    type=click.IntRange(min=0),
    default=_LIMITS.replication_gap,
    show_default=True,
    help="Bytes that a slave may be behind.",
)
@click.option(
    "--max-skew",
    type=click.FloatRange(min=0),
    default=_LIMITS.clock_skew_s,
    show_default=True,
    help="Seconds by which clocks may differ.",
)
async def doctor(
    admin: AsyncAdmin, *, show_all: bool, strict: bool, max_lag: int, max_gap: int, max_skew: float
) -> CommandReport:
    """Look at a whole cluster, and say what is wrong and what to do about it.

    Name servers, routes, addresses as seen from here, disks, what a power failure may lose,
    replication, subscriptions, dead letters, clocks.  Ends with 1 if there is a problem.
    """
    limits = DoctorLimits(lag=max_lag, replication_gap=max_gap, clock_skew_s=max_skew)
    found = await admin.diagnose(limits)
    counts = {level.value: sum(one.level is level for one in found) for level in DiagnosisLevel}
    bad = counts["problem"] + (counts["warning"] if strict else 0)
    shown = [one for one in found if show_all or one.level is not DiagnosisLevel.OK]
    return CommandReport(rows=shown, summary=counts, exit_code=EXIT_PROBLEMS if bad else EXIT_FINE)
