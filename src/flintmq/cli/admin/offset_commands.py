"""Commands about how far groups have come, and about moving them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.offset_admin import NEWEST
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, change_report
from flintmq.cli.admin.place_options import group_option, topic_option
from flintmq.cli.admin.time_input import moment
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin
    from flintmq.admin.lag_admin import TopicLag


@admin_command("consumerProgress")
@click.option("-g", "--group", help="One group by queue; without it all groups.")
@click.option("-t", "--topic", help="Only this topic.")
@click.option("-s", "--show-client", "with_clients", type=bool, is_flag=False, flag_value=True)
async def consumer_progress(
    admin: AsyncAdmin, *, group: str | None, topic: str | None, with_clients: bool | None
) -> CommandReport:
    """Show how far groups have come."""
    if group is None:
        answers = await admin.group_summaries()
        return CommandReport(
            rows=[one for _, one in answers.found],
            failures=answers.failures,
            summary={"groups": len(answers.found)},
        )
    progress = await admin.group_progress(group, topic=topic, with_clients=bool(with_clients))
    return CommandReport(
        rows=progress.queues,
        summary={
            "group": group,
            "consumedPerSecond": progress.consumed_per_second,
            "diffTotal": progress.diff_total,
        },
    )


@admin_command("brokerConsumeStats")
@click.option("-b", "--broker", metavar="ADDR|NAME", required=True, help="The broker to ask.")
@click.option("-t", "--timeout-millis", type=click.IntRange(min=1), default=50_000)
@click.option("-l", "--level", type=int, default=0, help="Only queues that are so far behind.")
@click.option("-o", "--order", type=bool, default=False, help="Only ordered topics.")
async def broker_consume_stats(
    admin: AsyncAdmin, *, broker: str, timeout_millis: int, level: int, order: bool
) -> CommandReport:
    """Show how far all groups have come in the queues of a broker."""
    rows = await admin.broker_lags(broker, ordered_only=order, timeout_ms=timeout_millis)
    return CommandReport(
        rows=[one for one in rows if one.diff >= level],
        summary={"diffTotal": sum(one.diff for one in rows)},
    )


@admin_command("lag")
@click.option("-g", "--group", help="One group; without it all groups.")
@click.option("-t", "--topic", help="Only this topic.")
@click.option("--max", "messages_max", type=click.IntRange(min=0), help="End with 1 if above.")
@click.option("--max-seconds", type=click.FloatRange(min=0), help="End with 1 if above.")
async def lag(
    admin: AsyncAdmin,
    *,
    group: str | None,
    topic: str | None,
    messages_max: int | None,
    max_seconds: float | None,
) -> CommandReport:
    """Show how far groups are behind, in messages and in seconds; for monitoring with --max."""
    failures = []
    if group is not None:
        rows = await admin.lags(group, topic=topic)
    else:
        answers = await admin.ask_all(await admin.groups(), lambda one: _lags(admin, one, topic))
        rows = [one for _, found in answers.found for one in found]
        failures = answers.failures
    behind = [
        one
        for one in rows
        if (messages_max is not None and one.messages > messages_max)
        or (max_seconds is not None and one.seconds > max_seconds)
    ]
    return CommandReport(
        rows=rows,
        summary={
            "messages": sum(one.messages for one in rows),
            "seconds": max((one.seconds for one in rows), default=0.0),
            "aboveLimit": [f"{one.group} in {one.topic}" for one in behind],
        },
        failures=failures,
        exit_code=EXIT_PROBLEMS if behind else None if failures else EXIT_FINE,
    )


async def _lags(admin: AsyncAdmin, group: str, topic: str | None) -> list[TopicLag]:
    try:
        return await admin.lags(group, topic=topic)
    except MissingError:
        return []


def _reset_moment(text: str) -> int:
    """Return a time; ``now`` is the end of queues, or the last message would come again."""
    return NEWEST if text.strip() == "now" else moment(text)


@admin_command("resetOffsetByTime", changes=True)
@group_option
@topic_option
@click.option("-s", "--timestamp", type=_reset_moment, required=True, help="now, ISO 8601, or ms.")
@click.option("-f", "--force", type=bool, default=True, help="Forward too, not only back.")
@click.option("-c", "--cplus", type=bool, is_flag=False, flag_value=True, help="As mqadmin.")
async def reset_offset_by_time(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    group: str,
    topic: str,
    timestamp: int,
    force: bool,
    cplus: bool | None,
) -> CommandReport:
    """Have a group go on from the messages of a time; offline groups too."""
    return change_report(
        await admin.reset_offsets(group, topic, timestamp, force=force, dry_run=dry_run)
    )


@admin_command("skipAccumulatedMessage", changes=True)
@group_option
@topic_option
@click.option("-f", "--force", type=bool, default=True, help="As mqadmin.")
async def skip_accumulated(
    admin: AsyncAdmin, *, dry_run: bool, group: str, topic: str, force: bool
) -> CommandReport:
    """Have a group go on from the newest message: what it has not consumed is skipped."""
    return change_report(
        await admin.reset_offsets(group, topic, NEWEST, force=force, dry_run=dry_run)
    )


@admin_command("cloneGroupOffset", changes=True)
@click.option("-s", "--source-group", required=True, help="The group that is copied.")
@click.option("-d", "--target-group", required=True, help="The group that is moved.")
@topic_option
@click.option("-o", "--offline", type=bool, is_flag=False, flag_value=True, help="As mqadmin.")
async def clone_group_offset(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    source_group: str,
    target_group: str,
    topic: str,
    offline: bool | None,
) -> CommandReport:
    """Have one group go on where another is."""
    return change_report(
        await admin.clone_offsets(source_group, target_group, topic, dry_run=dry_run)
    )
