"""The frame of all jobs: their common options, their output as text or JSON, and exit codes.

A command is a function that is given a `Job` and its own options, and returns a `JobOutcome`.
Everything else that the commands have in common happens here, once.
"""

import functools
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_INTERRUPTED, EXIT_PROBLEMS, EXIT_USAGE
from flintmq.cli.option_types import SHAPE_ADVICE
from flintmq.cli.output.console import write_line
from flintmq.cli.output.json_output import to_json
from flintmq.cli.output.text import printable
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_options import JOB_OPTIONS
from flintmq.cli.pipeline.spark_extra import JOB_PACKAGES, require_packages
from flintmq.offline import OutputError, UnknownIndexShapeError
from flintmq.spark.runtime.failures import LoggedError, SqlError
from flintmq.spark.runtime.java_runtime import end_java
from flintmq.spark.runtime.session_settings import SessionError, SessionSettings

_SIGNAL_SECONDS: Final = 1.0
"""How long to wait for a signal that has ended Java already."""


class SqlUsageError(click.ClickException):
    """The query is wrong; the way it was given is not."""

    exit_code = EXIT_USAGE


class JobInterruptedError(click.ClickException):
    """The user has interrupted the job (Ctrl-C)."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self) -> None:
        super().__init__("interrupted: the job did not come to its end")

    def show(self, file: IO[Any] | None = None) -> None:
        """Say so in one line; it is no error of the command."""
        click.echo(self.format_message(), file=file, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What a job leaves to be told.

    ``report`` is printed with ``--format json``; otherwise ``lines`` go to stdout and ``notes`` to
    stderr.  A job that has printed everything itself leaves all three empty.  ``has_losses`` says
    that something was left out, which the user may accept beforehand.
    """

    report: object = None
    lines: Iterable[str] = ()
    notes: Iterable[str] = ()
    has_problems: bool = False
    has_losses: bool = False

    def exit_code(self, *, accepts_loss: bool) -> int:
        """Return the exit code of the command."""
        is_wrong = self.has_problems or (self.has_losses and not accepts_loss)
        return EXIT_PROBLEMS if is_wrong else EXIT_FINE


def job_command(name: str) -> Callable[[Callable[..., JobOutcome]], click.Command]:
    """Make a command of a function that does a job; the job itself is its argument ``job``."""

    def decorate(do_job: Callable[..., JobOutcome]) -> click.Command:
        @functools.wraps(do_job)
        def command(
            *,
            master: str,
            conf: dict[str, str],
            parallelism: int | None,
            log_file: Path | None,
            zone: str,
            form: str,
            accept_loss: bool = False,
            **options: object,
        ) -> int:
            require_packages(*JOB_PACKAGES)
            try:
                settings = SessionSettings(
                    master=master,
                    conf=conf,
                    parallelism=parallelism,
                    log_file=log_file,
                    app_name=f"flintmq {name}",
                    zone=zone,
                )
            except SessionError as error:
                raise click.UsageError(printable(str(error))) from error
            job = Job(name=name, settings=settings, is_json=form == "json")
            with told_shortly():
                outcome = do_job(job=job, **options)
            _tell(outcome, is_json=job.is_json)
            return outcome.exit_code(accepts_loss=accept_loss)

        decorated: Callable[..., int] = command
        for option in reversed(JOB_OPTIONS):
            decorated = option(decorated)
        return click.command(name)(decorated)

    return decorate


@contextmanager
def _noted_interrupts() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets, besides what it does otherwise."""
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before):
        yield interrupted
        return

    def note(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        end_java()
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def told_shortly() -> Iterator[None]:
    """Turn what the user has caused, by wrong usage or by Ctrl-C, into an error of one line."""
    try:
        with _noted_interrupts() as interrupted:
            try:
                yield
            except LoggedError:
                # Java gets the signal too, and a call to it may fail before we hear of it.
                if interrupted.wait(_SIGNAL_SECONDS):
                    raise KeyboardInterrupt from None
                raise
            except Exception:
                # A call to Java that was interrupted leaves its answer to the next one.
                if interrupted.is_set():
                    raise KeyboardInterrupt from None
                raise
    except KeyboardInterrupt as error:
        raise JobInterruptedError from error
    except SqlError as error:
        raise SqlUsageError(printable(str(error))) from error
    except UnknownIndexShapeError as error:
        raise click.UsageError(printable(f"{error.path}: {SHAPE_ADVICE}")) from error
    except OutputError as error:
        raise click.UsageError(printable(str(error))) from error


def _tell(outcome: JobOutcome, *, is_json: bool) -> None:
    if is_json:
        if outcome.report is not None:
            write_line(to_json(outcome.report))
        return
    for line in outcome.lines:
        write_line(line)
    for note in outcome.notes:
        click.echo(note, err=True)
