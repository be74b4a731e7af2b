"""Commands that find single messages, tell what became of them, and send new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.admin.admin_errors import MissingError
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, change_report
from flintmq.cli.admin.message_rows import BODY_COLUMNS, known_charset, message_row
from flintmq.cli.admin.place_options import topic_option
from flintmq.cli.admin.time_input import moment
from flintmq.client.errors import UsageError
from flintmq.client.messaging.messages import Message
from flintmq.client.searching.message_search import END_OF_TIME_MS, FOUND_COUNT_MAX, PAGE_COUNT
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.admin.async_admin import AsyncAdmin
    from flintmq.client.messaging.messages import ReceivedMessage

_GROUP = click.option("-g", "--group", help="With -d: have a member of this group handle it.")
_CLIENT = click.option("-d", "--client-id", help="The member that handles it.")
_BEGIN = click.option("--begin", type=moment, default="0", help="Not stored before.")
_END = click.option("--end", type=moment, default=str(END_OF_TIME_MS), help="Not stored after.")
_LIMIT = click.option(
    "--limit", type=click.IntRange(1, FOUND_COUNT_MAX), default=PAGE_COUNT, show_default=True
)


@admin_command("queryMsgById", changes=True)
@click.option("-i", "--ids", required=True, help="Offset ids, with , between several.")
@_GROUP
@_CLIENT
@click.option("-s", "--send", "resend", type=bool, default=False, help="Send it again.")
@click.option("-u", "--unit-name", help="As mqadmin.")
async def query_by_id(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    ids: str,
    group: str | None,
    client_id: str | None,
    resend: bool,
    unit_name: str | None,
) -> CommandReport:
    """Show messages by their offset ids; with -g and -d have one handled, with -s sent again."""
    wanted = [one.strip() for one in ids.split(",") if one.strip()]
    if not wanted:
        raise UsageError("no message id was given")
    messages = [await admin.message_by_id(one) for one in wanted]
    if resend:
        return change_report(await admin.resend_messages(messages, dry_run=dry_run))
    return await _shown_or_pushed(admin, messages, group, client_id, dry_run=dry_run)


@admin_command("queryMsgByUniqueKey", changes=True)
@topic_option
@click.option("-i", "--id", "unique_id", required=True, help="The id that the producer gave.")
@_GROUP
@_CLIENT
@click.option("-a", "--show-all", is_flag=True, help="As mqadmin; all are always shown.")
async def query_by_unique_key(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    topic: str,
    unique_id: str,
    group: str | None,
    client_id: str | None,
    show_all: bool,
) -> CommandReport:
    """Show messages by the id that their producer gave; with -g and -d have one handled."""
    messages = await admin.message_by_unique_id(topic, unique_id)
    return await _shown_or_pushed(admin, messages, group, client_id, dry_run=dry_run)


async def _shown_or_pushed(
    admin: AsyncAdmin,
    messages: list[ReceivedMessage],
    group: str | None,
    client_id: str | None,
    *,
    dry_run: bool,
) -> CommandReport:
    """Show messages with what groups have done with them, or have a consumer handle them."""
    if (group is None) != (client_id is None):
        raise UsageError("name both a group (-g) and a client (-d), or neither")
    if group is not None and client_id is not None:
        pushed = await admin.push_messages(messages, group, client_id, dry_run=dry_run)
        return change_report(pushed)
    rows = []
    for message in messages:
        tracks = await admin.track(message)
        rows.append(message_row(message) | {"tracks": tracks})
    return CommandReport(rows=rows, table_rows=list(_vertical(rows)))


def _vertical(rows: Iterable[dict[str, object]]) -> Iterable[dict[str, object]]:
    """Yield each member of a message on a line of its own: a row would be too long to read."""
    for row in rows:
        for key, value in row.items():
            if key == "tracks":
                assert isinstance(value, list)
                value = {one.group: one.state.value for one in value}
            yield {"field": key, "value": value}


@admin_command("queryMsgByKey")
@topic_option
@click.option("-k", "--key", required=True, help="One of the keys of the messages.")
@_BEGIN
@_END
@_LIMIT
async def query_by_key(
    admin: AsyncAdmin, *, topic: str, key: str, begin: int, end: int, limit: int
) -> CommandReport:
    """Show the newest messages of a key; more than the 64 of a broker with --limit."""
    found = await admin.messages_by_key(topic, key, begin_ms=begin, end_ms=end, count_max=limit)
    return CommandReport(
        rows=[message_row(one) for one in found.messages],
        columns=BODY_COLUMNS,
        summary={
            "scanned": found.scanned,
            "matched": len(found.messages),
            "complete": found.is_complete,
        },
        failures=found.failures,
    )


@admin_command("queryMsgByOffset")
@topic_option
@click.option("-b", "--broker", required=True, help="Name of the broker.")
@click.option("-i", "--queue-id", type=click.IntRange(min=0), required=True)
@click.option("-o", "--offset", type=click.IntRange(min=0), required=True)
@click.option("-f", "--body-format", default="utf-8", help="Charset of the body.")
async def query_by_offset(
    admin: AsyncAdmin, *, topic: str, broker: str, queue_id: int, offset: int, body_format: str
) -> CommandReport:
    """Show the message at an offset of a queue."""
    message = await admin.message_at(MessageQueue(topic, broker, queue_id), offset)
    row = message_row(message, charset=known_charset(body_format))
    return CommandReport(rows=[row], table_rows=list(_vertical([row])))


@admin_command("queryMsgTraceById")
@click.option("-i", "--id", "message_id", required=True, help="The id that the producer gave.")
@click.option("-t", "--trace-topic", default=TRACE_TOPIC, show_default=True)
@_BEGIN
@_END
@_LIMIT
async def query_trace(
    admin: AsyncAdmin, *, message_id: str, trace_topic: str, begin: int, end: int, limit: int
) -> CommandReport:
    """Show what producers and consumers have done with a message, if they trace it."""
    steps, is_complete = await admin.message_trace(
        message_id, topic=trace_topic, begin_ms=begin, end_ms=end, count_max=limit
    )
    if not steps:
        raise MissingError(f"nobody has traced the message {message_id}")
    return CommandReport(rows=steps, summary={"matched": len(steps), "complete": is_complete})


@admin_command("sendMessage", changes=True, asks=False)
@topic_option
@click.option("-p", "--body", required=True, help="The body, as text.")
@click.option("-k", "--keys", help="Keys, with blanks between several.")
@click.option("-c", "--tags", help="The tag.")
@click.option("-b", "--broker", help="Name of the broker; needs -i.")
@click.option("-i", "--queue-id", type=click.IntRange(min=0), help="Queue; needs -b.")
@click.option("-m", "--trace", "msg_trace", type=bool, default=False, help="As mqadmin.")
async def send_message(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    topic: str,
    body: str,
    keys: str | None,
    tags: str | None,
    broker: str | None,
    queue_id: int | None,
    msg_trace: bool,
) -> CommandReport:
    """Send a message."""
    message = Message(
        topic=topic, body=body.encode(), tag=tags, keys=() if keys is None else keys.split()
    )
    if dry_run:
        row: dict[str, object] = {"topic": topic, "bodySize": len(message.body), "sent": False}
        return CommandReport(rows=[row])
    result = await admin.send_message(message, broker=broker, queue_id=queue_id)
    row = {
        "broker": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
        "status": result.status.value,
        "messageId": result.message_id,
        "offsetMessageId": result.offset_message_id,
    }
    return CommandReport(rows=[row])
