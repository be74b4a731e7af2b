"""Commands that read queues from an offset or a time on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.scan_admin import SCAN_COUNT_MAX
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport
from flintmq.cli.admin.message_rows import (
    BODY_COLUMNS,
    SHORT_COLUMNS,
    known_charset,
    message_row,
)
from flintmq.cli.admin.place_options import topic_option
from flintmq.cli.admin.time_input import moment
from flintmq.client.routing.queue_lists import subscribe_queues
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import EVERYTHING

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin
    from flintmq.admin.scan_admin import QueueScan

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])


def _limits(command: _Decorated) -> _Decorated:
    for option in (
        click.option("--cursor", help="Go on where an answer before this one ended."),
        click.option(
            "--limit",
            type=click.IntRange(1, SCAN_COUNT_MAX),
            default=1000,
            show_default=True,
            help="At most so many messages.",
        ),
    ):
        command = option(command)
    return command


def scan_report(
    scan: QueueScan, *, charset: str = "utf-8", with_body: bool = True
) -> CommandReport:
    """Return the messages of a scan, how much was looked at, and where to go on."""
    return CommandReport(
        rows=[message_row(one, charset=charset, with_body=with_body) for one in scan.messages],
        columns=BODY_COLUMNS if with_body else SHORT_COLUMNS,
        summary={
            "scanned": scan.scanned,
            "matched": len(scan.messages),
            "complete": scan.is_complete,
            "cursor": scan.cursor,
            "queues": [
                {
                    "broker": one.queue.broker_name,
                    "queueId": one.queue.queue_id,
                    "begin": one.begin,
                    "end": one.end,
                }
                for one in scan.ranges
            ],
        },
    )


@admin_command("printMsg")
@topic_option
@click.option("-c", "--charset", default="utf-8", help="Of the bodies.")
@click.option("-s", "--sub-expression", "expression", default=EVERYTHING, help="Tags, || between.")
@click.option("-b", "--begin", type=moment, help="Not stored before.")
@click.option("-e", "--end", type=moment, help="Not stored after.")
@click.option("-d", "--print-body", type=bool, default=True, help="With their bodies.")
@_limits
async def print_messages(
    admin: AsyncAdmin,
    *,
    topic: str,
    charset: str,
    expression: str,
    begin: int | None,
    end: int | None,
    print_body: bool,
    limit: int,
    cursor: str | None,
) -> CommandReport:
    """Show the messages of a topic that were stored within a range of times."""
    scan = await admin.scan(
        topic, begin_ms=begin, end_ms=end, expression=expression, count_max=limit, cursor=cursor
    )
    return scan_report(scan, charset=known_charset(charset), with_body=print_body)


@admin_command("printMsgByQueue")
@topic_option
@click.option("-a", "--broker", required=True, help="Name of the broker.")
@click.option("-i", "--queue-id", type=click.IntRange(min=0), required=True)
@click.option("-c", "--charset", default="utf-8", help="Of the bodies.")
@click.option("-s", "--sub-expression", "expression", default=EVERYTHING, help="Tags, || between.")
@click.option("-b", "--begin", type=moment, help="Not stored before.")
@click.option("-e", "--end", type=moment, help="Not stored after.")
@click.option("-p", "--print-msg", type=bool, default=True, help="Show the messages.")
@click.option("-d", "--print-body", type=bool, default=True, help="With their bodies.")
@click.option("-f", "--calculate-by-tag", type=bool, default=False, help="Count them by tag.")
@_limits
async def print_queue(
    admin: AsyncAdmin,
    *,
    topic: str,
    broker: str,
    queue_id: int,
    charset: str,
    expression: str,
    begin: int | None,
    end: int | None,
    print_msg: bool,
    print_body: bool,
    calculate_by_tag: bool,
    limit: int,
    cursor: str | None,
) -> CommandReport:
    """Show the messages of one queue, or count them by tag."""
    scan = await admin.scan(
        topic,
        queues=[MessageQueue(topic, broker, queue_id)],
        begin_ms=begin,
        end_ms=end,
        expression=expression,
        count_max=limit,
        cursor=cursor,
    )
    report = scan_report(scan, charset=known_charset(charset), with_body=print_body)
    if calculate_by_tag:
        counts = Counter(one.tag or "" for one in scan.messages).most_common()
        report.summary = {**report.summary, "byTag": dict(counts)}
    if not print_msg:
        report.rows = ()
    return report


@admin_command("consumeMessage")
@topic_option
@click.option("-b", "--broker", help="Name of the broker.")
@click.option("-i", "--queue-id", type=click.IntRange(min=0), help="Only this queue; needs -b.")
@click.option("-o", "--offset", type=click.IntRange(min=0), help="From this offset on.")
@click.option("-g", "--group", help="As mqadmin; nothing is committed.")
@click.option("-s", "--begin", type=moment, help="Not stored before.")
@click.option("-e", "--end", type=moment, help="Not stored after.")
@click.option("-c", "--count", "limit", type=click.IntRange(1, SCAN_COUNT_MAX), default=128)
@click.option("--cursor", help="Go on where an answer before this one ended.")
async def consume_messages(
    admin: AsyncAdmin,
    *,
    topic: str,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    group: str | None,
    begin: int | None,
    end: int | None,
    limit: int,
    cursor: str | None,
) -> CommandReport:
    """Show messages from an offset or a time on; no group is moved."""
    known = subscribe_queues(topic, await admin.topic_route(topic))
    queues = [
        one
        for one in known
        if broker in (None, one.broker_name) and queue_id in (None, one.queue_id)
    ]
    if not queues:
        raise MissingError(f"{topic} has no such queue; topicStatus shows those that it has")
    scan = await admin.scan(
        topic,
        queues=queues,
        begin_ms=begin,
        end_ms=end,
        begin_offset=offset,
        count_max=limit,
        cursor=cursor,
    )
    return scan_report(scan)


@admin_command("queryCq")
@topic_option
@click.option("-q", "--queue", "queue_id", type=click.IntRange(min=0), required=True)
@click.option("-i", "--index", type=click.IntRange(min=0), required=True, help="First entry.")
@click.option("-c", "--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("-b", "--broker", metavar="ADDR|NAME", help="The broker to ask.")
@click.option("-g", "--group", help="Judge the entries by its subscription.")
async def query_queue(
    admin: AsyncAdmin,
    *,
    topic: str,
    queue_id: int,
    index: int,
    count: int,
    broker: str | None,
    group: str | None,
) -> CommandReport:
    """Show raw entries of a consume queue."""
    found = await admin.queue_units(
        topic, queue_id, index=index, count=count, broker=broker, group=group
    )
    return CommandReport(
        rows=found.units,
        summary={
            "minOffset": found.min_offset,
            "maxOffset": found.max_offset,
            "subscription": found.expression,
            "filter": found.filter_text,
        },
    )
