"""Commands that measure: statistics of topics and groups, and how long brokers take to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.cli.admin.command_frame import admin_command, interval_option
from flintmq.cli.admin.command_report import CommandReport
from flintmq.cli.admin.place_options import topic_option
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PARTLY, EXIT_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.admin.async_admin import AsyncAdmin
    from flintmq.admin.probe_admin import SendProbe

_COUNT = click.IntRange(1, 100_000)
_SIZE = click.IntRange(1, 4 << 20)


@admin_command("statsAll")
@click.option("-a", "--active-topic", "active_only", is_flag=True, help="Only those with traffic.")
@click.option("-t", "--topic", help="Only this topic.")
async def stats_all(admin: AsyncAdmin, *, active_only: bool, topic: str | None) -> CommandReport:
    """Show the traffic of topics, and of the groups that consume them."""
    answers = await admin.topic_statistics(topic=topic, active_only=active_only)
    rows = [one for _, found in answers.found for one in found]
    return CommandReport(rows=rows, failures=answers.failures)


@admin_command("checkMsgSendRT", changes=True, asks=False)
@topic_option
@click.option("-a", "--amount", type=_COUNT, default=100, show_default=True)
@click.option("-s", "--size", type=_SIZE, default=128, show_default=True, help="Bytes of a body.")
async def check_send_rt(
    admin: AsyncAdmin, *, dry_run: bool, topic: str, amount: int, size: int
) -> CommandReport:
    """Send test messages to the queues of a topic, and show how long each took."""
    await admin.topic_route(topic)  # A name that is not quite right must not make a topic.
    if dry_run:
        return _planned(topic, amount, size)
    return _probed(await admin.probe_topic(topic, count=amount, size=size))


@admin_command("sendMsgStatus", changes=True, asks=False)
@click.option("-b", "--broker", required=True, help="Name of the broker.")
@click.option("-s", "--message-size", "size", type=_SIZE, default=128, show_default=True)
@click.option("-c", "--count", type=_COUNT, default=50, show_default=True)
async def send_status(
    admin: AsyncAdmin, *, dry_run: bool, broker: str, size: int, count: int
) -> CommandReport:
    """Send test messages to the topic of a broker, and show how long each took."""
    await admin.places(broker=broker, masters_only=False)
    if dry_run:
        return _planned(broker, count, size)
    return _probed(await admin.probe_broker(broker, count=count, size=size))


def _planned(topic: str, count: int, size: int) -> CommandReport:
    return CommandReport(
        rows=[{"topic": topic, "messages": count, "bodySize": size, "sent": False}]
    )


def _probed(probes: Sequence[SendProbe]) -> CommandReport:
    good = [one.elapsed_ms for one in probes if one.is_ok]
    code = EXIT_FINE if len(good) == len(probes) else EXIT_PARTLY if good else EXIT_PROBLEMS
    # The first message has to open the connection, which is not the broker's doing.
    counted = good[1:] or good
    return CommandReport(
        rows=probes,
        summary={
            "ok": len(good),
            "failed": len(probes) - len(good),
            "averageMs": sum(counted) / len(counted) if counted else None,
            "maxMs": max(counted, default=None),
        },
        failures=[(one.broker, one.error) for one in probes if one.error is not None],
        exit_code=code,
    )


@admin_command("clusterRT", changes=True, asks=False)
@click.option("-a", "--amount", type=_COUNT, default=100, show_default=True)
@click.option("-s", "--size", type=_SIZE, default=128, show_default=True)
@click.option("-c", "--cluster", help="Only this cluster.")
@click.option("-p", "--print-log", type=bool, default=False, help="As mqadmin.")
@click.option("-m", "--machine-room", help="As mqadmin.")
@interval_option
async def cluster_rt(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    amount: int,
    size: int,
    cluster: str | None,
    print_log: bool,
    machine_room: str | None,
) -> CommandReport:
    """Send test messages to each broker, and show how long they take on average; -i repeats it."""
    if dry_run:
        return _planned(cluster or "all clusters", amount, size)
    rows = await admin.probe_cluster(cluster=cluster, count=amount, size=size)
    failed = sum(one.failed_count for one in rows)
    good = sum(one.ok_count for one in rows)
    code = EXIT_FINE if not failed else EXIT_PARTLY if good else EXIT_PROBLEMS
    return CommandReport(rows=rows, exit_code=code)


@admin_command("startMonitoring")
@click.option("--max-lag", type=click.IntRange(min=0), default=100_000, show_default=True)
async def start_monitoring(admin: AsyncAdmin, *, max_lag: int) -> CommandReport:
    """Look at all groups once: those far behind, and those that wait while nobody consumes.

    Use --watch to look again and again, as mqadmin does every minute.
    """
    answers = await admin.watched_groups(lag_max=max_lag)
    rows = [one for _, one in answers.found]
    found = sum(bool(one.problems) for one in rows)
    return CommandReport(
        rows=rows,
        summary={"groups": len(rows), "withProblems": found},
        failures=answers.failures,
        exit_code=EXIT_PROBLEMS if found else None,
    )
