"""Options of jobs on live topics, and what the data source is told of them.

Keys are taken from the environment only: a command line is seen by everybody on the machine.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from flintmq.cli.pipeline_options import parse_pairs

Command = TypeVar("Command", bound=Callable[..., Any])

_SECRETS: Final = {
    "FLINTMQ_ACCESS_KEY": "accessKey",
    "FLINTMQ_SECRET_KEY": "secretKey",
    "FLINTMQ_SECURITY_TOKEN": "securityToken",
}

namesrv_option: Final = click.option(
    "--namesrv",
    metavar="HOST:PORT",
    help="Read live topics of this cluster instead of directories; several with ';'.",
)
topic_option: Final = click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeatable."
)
source_option: Final = click.option(
    "--option",
    "extra",
    multiple=True,
    callback=parse_pairs,
    metavar="NAME=VALUE",
    help="An option of the data source for live topics, such as startingTimestamp; repeatable.",
)


def live_options(command: Command) -> Command:
    """Add what names live topics: --namesrv, --topic and --option."""
    for decorate in (source_option, topic_option, namesrv_option):
        command = decorate(command)
    return command


def live_source(namesrv: str, topics: Sequence[str], extra: dict[str, str]) -> dict[str, str]:
    """Return the options of the data source; without a topic, ``extra`` has to name some."""
    source = {"namesrv": namesrv, **secrets(), **extra}
    if topics:
        source["subscribe"] = ",".join(topics)
    return source


def secrets() -> dict[str, str]:
    """Return the options that the environment gives."""
    return {option: os.environ[name] for name, option in _SECRETS.items() if name in os.environ}


def check_source(
    directories: Sequence[str], namesrv: str | None, topics: Sequence[str], extra: dict[str, str]
) -> dict[str, str] | None:
    """Return the options for live topics, None for directories; UsageError for both or none."""
    if namesrv is None:
        if not directories:
            raise click.UsageError("give a directory, or --namesrv and --topic for live topics")
        if extra:
            raise click.UsageError("--option belongs to --namesrv")
        return None
    if directories:
        raise click.UsageError("either directories are read, or live topics (--namesrv), not both")
    return live_source(namesrv, topics, extra)
