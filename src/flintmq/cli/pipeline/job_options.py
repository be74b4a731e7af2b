"""Options and arguments that jobs have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from flintmq.spark.runtime.session_settings import DEFAULT_MASTER, PARALLELISM_MAX

_Command = TypeVar("_Command", bound=Callable[..., Any])


def parse_pairs(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Return what NAME=VALUE texts say, by name."""
    settings = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"NAME=VALUE, not {text!r}", context, parameter)
        settings[name.strip()] = value
    return settings


JOB_OPTIONS: Final = (
    click.option(
        "--master",
        default=DEFAULT_MASTER,
        show_default=True,
        metavar="URL",
        help="Spark's master: local[N] for cores of this machine, spark://HOST:PORT for a cluster.",
    ),
    click.option(
        "--conf",
        multiple=True,
        callback=parse_pairs,
        metavar="NAME=VALUE",
        help="A setting of Spark, which goes before our own; repeatable.",
    ),
    click.option(
        "--parallelism",
        type=click.IntRange(1, PARALLELISM_MAX),
        metavar="N",
        help="Use N cores of this machine; make at least N parts of the log and of a shuffle.",
    ),
    click.option(
        "--log-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Where Spark's own messages go; else a file that is kept only if the job fails.",
    ),
    click.option(
        "--zone",
        default="UTC",
        show_default=True,
        metavar="ZONE",
        help="Show and take times in this zone: Europe/Berlin, or +01:00.",
    ),
    click.option("--format", "form", type=click.Choice(["text", "json"]), default="text"),
)
"""The options of all jobs, in the order of their help text."""


def absolute(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...] | str
) -> tuple[str, ...] | str:
    """Return paths as executors can use them, which run in directories of their own."""
    if isinstance(texts, str):
        return texts if texts.startswith("file:") else str(Path(texts).absolute())
    return tuple(str(absolute(_context, _parameter, text)) for text in texts)


directories_argument = click.argument(
    "directories", metavar="DIR...", nargs=-1, required=True, callback=absolute
)
accept_loss_option = click.option(
    "--accept-loss",
    is_flag=True,
    help="End with 0, not 1, although something was left out; it is told all the same.",
)
_on_corrupt_option = click.option(
    "--on-corrupt",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What to do where a log is damaged: stop, or go on and tell what was left out.",
)


def on_corrupt_option(command: _Command) -> _Command:
    """Add what becomes of damage, and whether what was left out is a problem."""
    return _on_corrupt_option(accept_loss_option(command))


set_aside_option = click.option(
    "--set-aside",
    is_flag=True,
    help="Read what recovery has cut off the logs and set aside, instead of the logs.",
)
rate_option = click.option(
    "--rate", type=click.IntRange(min=1), metavar="N", help="Messages a second, at most."
)
available_now_option = click.option(
    "--available-now", is_flag=True, help="End with what is there at the start."
)
