"""``flintmq admin dlq``: dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.admin.scan_admin import SCAN_COUNT_MAX
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, exit_code_of
from flintmq.cli.admin.place_options import group_option
from flintmq.cli.admin.scan_commands import scan_report
from flintmq.cli.admin.time_input import moment
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PARTLY

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin

_BEGIN = click.option("-b", "--begin", type=moment, help="Not stored before.")
_END = click.option("-e", "--end", type=moment, help="Not stored after.")
_LIMIT = click.option(
    "--limit", type=click.IntRange(1, SCAN_COUNT_MAX), default=1000, show_default=True
)
_CURSOR = click.option("--cursor", help="Go on where an answer before this one ended.")


@click.group("dlq")
def dead_letter_group() -> None:
    """Look at dead letters, and have them consumed again."""


@admin_command("dlq list")
async def list_dead_letters(admin: AsyncAdmin) -> CommandReport:
    """List the groups that have dead letters."""
    rows = await admin.dead_letters()
    return CommandReport(rows=rows, summary={"messages": sum(one.messages for one in rows)})


@admin_command("dlq show")
@group_option
@_BEGIN
@_END
@_LIMIT
@_CURSOR
async def show_dead_letters(
    admin: AsyncAdmin,
    *,
    group: str,
    begin: int | None,
    end: int | None,
    limit: int,
    cursor: str | None,
) -> CommandReport:
    """Show the dead letters of a group."""
    scan = await admin.scan_dead_letters(
        group, begin_ms=begin, end_ms=end, count_max=limit, cursor=cursor
    )
    return scan_report(scan)


@admin_command("dlq replay", changes=True)
@group_option
@_BEGIN
@_END
@_LIMIT
@_CURSOR
@click.option("--id", "ids", multiple=True, help="Only messages of this id; repeatable.")
@click.option("--to", "topic", help="Send them to this topic instead.")
@click.option("--to-origin", is_flag=True, help="To where they came from: all groups get them.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages in a second.")
async def replay_dead_letters(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    group: str,
    begin: int | None,
    end: int | None,
    limit: int,
    cursor: str | None,
    ids: tuple[str, ...],
    topic: str | None,
    to_origin: bool,
    rate: float | None,
) -> CommandReport:
    """Have dead letters consumed again; unless told otherwise by their own group alone.

    They stay among the dead letters: a second replay sends them a second time.
    """
    scan = await admin.scan_dead_letters(
        group, begin_ms=begin, end_ms=end, count_max=limit, cursor=cursor
    )
    wanted = [one for one in scan.messages if not ids or one.message_id in ids]
    rows = await admin.replay_dead_letters(
        group, wanted, topic=topic, to_origin=to_origin, per_second=rate, dry_run=dry_run
    )
    failed = [one.error for one in rows if one.error is not None]
    code = EXIT_FINE
    if failed:
        code = EXIT_PARTLY if len(failed) < len(rows) else exit_code_of(failed[0])
    return CommandReport(
        rows=rows,
        summary={
            "scanned": scan.scanned,
            "matched": len(wanted),
            "sent": sum(one.outcome == "sent" for one in rows),
            "failed": len(failed),
            "complete": scan.is_complete,
            "cursor": scan.cursor,
        },
        failures=[("replay", error) for error in failed],
        exit_code=code,
    )


for _command in (list_dead_letters, show_dead_letters, replay_dead_letters):
    dead_letter_group.add_command(_command)
