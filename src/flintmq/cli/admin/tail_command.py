"""``flintmq admin tail``: the messages of a topic as they come."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from flintmq.admin.topic_tail import TailFilter, TailStart, TopicTail
from flintmq.cli.admin.live_frame import live_command
from flintmq.cli.admin.place_options import topic_option
from flintmq.cli.admin.time_input import moment
from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.output.console import write_line
from flintmq.cli.output.text import local_time, printable
from flintmq.client.errors import UsageError
from flintmq.model.subscription import EVERYTHING, SQL92, TAG
from flintmq.offline.readable_bodies import BodyForm, body_fields

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin
    from flintmq.client.messaging.messages import ReceivedMessage

LAST_MAX: Final = 10_000
BODY_MAX: Final = 4 << 20
USUAL_FORMAT: Final = "{storedAt} {broker}/{queueId}@{queueOffset} {tags} {keys} {body}"
FIELDS: Final = (
    *(
        "topic",
        "broker",
        "queueId",
        "queueOffset",
        "physicalOffset",
        "messageId",
        "offsetMessageId",
    ),
    *(
        "tags",
        "keys",
        "bornAt",
        "storedAt",
        "bornHost",
        "reconsumeTimes",
        "size",
        "body",
        "bodyForm",
    ),
    "properties",
)
"""What a format may name."""

_NAME: Final = re.compile(r"\{(\w+)\}")


@live_command("tail")
@topic_option
@click.option("-s", "--tags", metavar="TAGS", help="Only these tags: 'A || B'.")
@click.option("--sql", metavar="EXPRESSION", help="Only what SQL92 says of the properties.")
@click.option("--from", "from_time", metavar="TIME", help="Begin there: ISO 8601, 10m (ago), now.")
@click.option(
    "--last", type=click.IntRange(0, LAST_MAX), default=0, help="Begin so far back in each queue."
)
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
@click.option("--for", "seconds", type=click.FloatRange(0), metavar="SECONDS", help="End then.")
@click.option(
    "--body",
    type=click.Choice([form.value for form in BodyForm]),
    default=BodyForm.AUTO.value,
    show_default=True,
    help="How bodies are shown.",
)
@click.option("--body-max", type=click.IntRange(0, BODY_MAX), default=1024, show_default=True)
@click.option(
    "--format",
    "template",
    default=USUAL_FORMAT,
    metavar="TEXT",
    help=f"A line, with {{names}} of: {', '.join(FIELDS)}.",
)
async def tail(
    admin: AsyncAdmin,
    *,
    output: str,
    topic: str,
    tags: str | None,
    sql: str | None,
    from_time: str | None,
    last: int,
    count: int | None,
    seconds: float | None,
    body: str,
    body_max: int,
    template: str,
) -> int:
    """Show the messages of a topic as they come, until it is interrupted.

    It is no member of any group: nobody gets less for it, and nothing is committed.  With
    --output json or jsonl each message is an object on a line.
    """
    if output not in ("table", "json", "jsonl"):
        raise UsageError(f"tail writes table or jsonl, not {output}")
    if tags is not None and sql is not None:
        raise UsageError("--tags or --sql, not both")
    _check_template(template)
    start = TailStart(from_ms=None if from_time is None else moment(from_time), last_count=last)
    wanted = TailFilter(
        expression=sql or tags or EVERYTHING, expression_type=TAG if sql is None else SQL92
    )
    form, shown = BodyForm(body), 0
    deadline = None if seconds is None else time.monotonic() + seconds
    async with TopicTail.following(
        admin.client, topic, start=start, wanted=wanted, on_trouble=_complain
    ) as following:
        while count is None or shown < count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            message = await following.next(left)
            if message is None:
                continue
            row = message_row(message, form, body_max)
            write_line(template_line(template, row) if output == "table" else _json_line(row))
            sys.stdout.flush()
            shown += 1
    return EXIT_FINE


def message_row(message: ReceivedMessage, form: BodyForm, body_max: int) -> dict[str, Any]:
    """Return what is shown of a message, by the names of FIELDS."""
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "tags": message.tag,
        "keys": list(message.keys),
        "bornAt": local_time(message.born_timestamp),
        "storedAt": local_time(message.store_timestamp),
        "bornHost": message.born_host,
        "reconsumeTimes": message.reconsume_times,
        "size": len(message.body),
        "properties": dict(message.properties),
        **body_fields(message.body, form, size_max=body_max),
    }


def template_line(template: str, row: dict[str, Any]) -> str:
    """Return a line; what is in braces is replaced by what the row has under that name."""
    return _NAME.sub(lambda found: _cell(row.get(found[1])), template)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return printable(" ".join(map(str, value))) or "-"
    if isinstance(value, dict):
        return printable(json.dumps(value, ensure_ascii=False))
    return printable(str(value))


def _check_template(template: str) -> None:
    names = set(_NAME.findall(template))
    rest = _NAME.sub("", template)
    if names - set(FIELDS) or "{" in rest or "}" in rest:
        raise UsageError(f"--format may name {', '.join(FIELDS)}")


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"))


def _complain(text: str) -> None:
    click.echo(f"flintmq: {printable(text)}; trying again", err=True)
