"""What a job reads, as its command line says: directories, or live topics of a cluster.

Keys are taken from the environment only: a command line is seen by everybody on the machine.
"""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final, TypeVar

import click

from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_options import parse_pairs
from flintmq.client.options import ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN

if TYPE_CHECKING:
    from flintmq.spark.jobs.job_input import StoredInput

Result = TypeVar("Result")

_SECRETS: Final = {
    ACCESS_KEY: "accessKey",
    SECRET_KEY: "secretKey",
    SECURITY_TOKEN: "securityToken",
}
_SELECTIONS: Final = frozenset({"topic", "subscribe", "subscribepattern", "assign"})
"""Options of the data source that choose topics as --topic does, in lower case."""

_TIMES: Final = frozenset({"startingtimestamp", "endingtimestamp"})
"""Options of the data source that are times, in lower case."""

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


def live_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add what names live topics: --namesrv, --topic and --option."""
    for decorate in (source_option, topic_option, namesrv_option):
        command = decorate(command)
    return command


def live_source(
    namesrv: str, topics: Sequence[str], extra: dict[str, str], *, zone: tzinfo = UTC
) -> dict[str, str]:
    """Return the options of the data source; without a topic, ``extra`` has to name some.

    Times that name no zone are of ``zone``; the source itself would take them for UTC.
    """
    source = {"namesrv": namesrv, **secrets(), **_with_zones(extra, zone)}
    if topics:
        source["subscribe"] = ",".join(topics)
    return source


def _with_zones(extra: dict[str, str], zone: tzinfo) -> dict[str, str]:
    """Return options whose times all name a zone; what is no time is left to the source."""
    zoned = dict(extra)
    for name, text in extra.items():
        if name.lower() not in _TIMES:
            continue
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            continue
        if moment.tzinfo is None:
            zoned[name] = moment.replace(tzinfo=zone).isoformat()
    return zoned


def secrets() -> dict[str, str]:
    """Return the options that the environment gives."""
    return {option: os.environ[name] for name, option in _SECRETS.items() if name in os.environ}


def check_source(
    directories: Sequence[str],
    namesrv: str | None,
    topics: Sequence[str],
    extra: dict[str, str],
    *,
    zone: tzinfo = UTC,
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
    if not topics and _SELECTIONS.isdisjoint(map(str.lower, extra)):
        raise click.UsageError("--topic says which topics are read")
    return live_source(namesrv, topics, extra, zone=zone)


def refuse_set_aside(set_aside: bool) -> None:
    """Raise UsageError for the option --set-aside where live topics are read."""
    if set_aside:
        raise click.UsageError("--set-aside belongs to directories")


def stored_input(
    job: Job,
    paths: Sequence[str],
    on_corrupt: str,
    *,
    allows_archive: bool = False,
    set_aside: bool = False,
) -> "StoredInput":
    """Return store directories, or an archive where the job reads one, as the input of a job."""
    from flintmq.spark.jobs.job_input import StoredInput
    from flintmq.spark.options.store_options import OnCorrupt

    check_paths(paths, allows_archive=allows_archive)
    return StoredInput(
        paths=tuple(paths),
        on_corrupt=OnCorrupt(on_corrupt),
        splits_min=job.parallelism,
        set_aside=set_aside,
    )


def check_paths(paths: Sequence[str], *, allows_archive: bool = False) -> None:
    """Say at once what is no store, nor an archive: Spark takes seconds to start."""
    from flintmq.spark.jobs.query.query_views import is_archive
    from flintmq.spark.jobs.store_tables import check_stores

    if not (allows_archive and any(map(is_archive, paths))):
        check_stores(paths)
