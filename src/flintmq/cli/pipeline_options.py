"""Options that every job has, and the Spark session they make.

Spark is loaded when a job runs: help texts and the other commands do without it, and so does an
installation without the extra.
"""

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flintmq.cli.exit_codes import EXIT_UNREADABLE
from flintmq.cli.pipeline_progress import task_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.options import OnCorrupt
    from flintmq.spark.session import SessionSettings, TaskSession

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_MASTER: Final = "local[*]"
PARALLELISM_MAX: Final = 100_000
_EXTRA: Final = frozenset({"matplotlib", "numba", "numpy", "pandas", "py4j", "pyarrow", "pyspark"})


class SparkMissingError(click.ClickException):
    """The packages of the extra ``spark`` are not installed."""

    exit_code = EXIT_UNREADABLE

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'flintmq[spark]'")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What the user said about a job, whatever it does."""

    master: str
    conf: dict[str, str]
    parallelism: int | None
    log_file: Path | None
    is_json: bool

    @contextmanager
    def session(self, label: str, *, progress: bool = True) -> "Iterator[SparkSession]":
        """Yield the Spark session of the job, and show its progress meanwhile."""
        session = load_extra("flintmq.spark.session")
        settings = self._settings(session, label)
        with session.job_session(settings) as spark, task_progress(spark, label, shown=progress):
            yield spark

    @contextmanager
    def tasks(self, label: str) -> "Iterator[TaskSession]":
        """Do the same for a job whose tasks are Python alone, without Spark's SQL."""
        session = load_extra("flintmq.spark.session")
        settings = self._settings(session, label)
        with session.task_session(settings) as spark, task_progress(spark, label):
            yield spark

    def _settings(self, session: Any, label: str) -> "SessionSettings":
        settings: SessionSettings = session.SessionSettings(
            master=self.master,
            conf=self.conf,
            parallelism=self.parallelism,
            log_file=self.log_file,
            app_name=f"flintmq {label}",
        )
        return settings

    def split_options(self, directories: Sequence[str]) -> dict[str, int]:
        """Return how large parts of the log are, where the user wants more of them."""
        if self.parallelism is None:
            return {}
        stores = load_extra("flintmq.spark.jobs.stores")
        return {"split_size": stores.split_size_for(directories, self.parallelism)}


def load_extra(module: str) -> Any:
    """Return a module of ``flintmq.spark``; without the extra, SparkMissingError tells of it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        raise SparkMissingError(package) from error


def job_options(command: Command) -> Command:
    """Add the options of all jobs; the command gets them as ``job``."""

    @functools.wraps(command)
    def with_job(
        *arguments: Any,
        master: str,
        conf: dict[str, str],
        parallelism: int | None,
        log_file: Path | None,
        form: str,
        **others: Any,
    ) -> Any:
        job = JobOptions(
            master=master,
            conf=conf,
            parallelism=parallelism,
            log_file=log_file,
            is_json=form == "json",
        )
        return command(*arguments, job=job, **others)

    decorated: Any = with_job
    for decorate in reversed(_OPTIONS):
        decorated = decorate(decorated)
    return decorated  # type: ignore[no-any-return]  # click keeps the type of what it decorates


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


_OPTIONS: Final = (
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
    click.option("--format", "form", type=click.Choice(["text", "json"]), default="text"),
)


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

on_corrupt_option = click.option(
    "--on-corrupt",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What to do where a log is damaged: stop, or go on and tell what was left out.",
)


def on_corrupt_mode(text: str) -> "OnCorrupt":
    """Return the mode of the data source that an option names."""
    mode: OnCorrupt = load_extra("flintmq.spark.options").OnCorrupt(text)
    return mode


def quick_check(directories: Sequence[str]) -> None:
    """Say at once what is no store: Spark takes seconds to start."""
    load_extra("flintmq.spark.jobs.stores").check_stores(directories)


def expanded(directories: Sequence[str]) -> list[Path]:
    """Return the directories that paths and patterns name, each once."""
    found: list[Path] = load_extra("flintmq.spark.plan").store_directories(directories)
    return found
