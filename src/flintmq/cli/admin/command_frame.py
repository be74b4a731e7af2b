"""What every command of ``flintmq admin`` has in common.

A command is a coroutine function that gets an open `AsyncAdmin` and its options, and returns a
`CommandReport`.  One that changes something also gets ``dry_run``: it is called with it first, to
show what would be changed, and then without it when the user agrees.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import click

from flintmq.admin.async_admin import AsyncAdmin
from flintmq.admin.changes import AdminChange, ChangeOutcome
from flintmq.admin.dead_letter_admin import PLANNED, ReplayOutcome
from flintmq.cli.admin.command_report import CommandReport, exit_code_of
from flintmq.cli.admin.rendering import FORMS, report_lines
from flintmq.cli.contexts.context_file import client_options
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_USAGE
from flintmq.cli.output.console import OutputClosedError, write_line
from flintmq.cli.output.text import printable
from flintmq.client.errors import NoNameServerError, ResponseError
from flintmq.errors import FlintError
from flintmq.format.wire.codes import ResponseCode
from flintmq.remoting import AnswerTimeoutError, ConnectError

Work: TypeAlias = Callable[..., Awaitable[CommandReport]]

TIMEOUT_S: Final = 5.0
WATCH_MIN_S: Final = 0.1
CLEAR: Final = "\x1b[H\x1b[2J"


@dataclass(slots=True)
class CommandFrame:
    """What was said about the frame of a command, before its name or behind it."""

    namesrv: str | None = None
    context: str | None = None
    output: str = "table"
    timeout_s: float = TIMEOUT_S
    debug: bool = False
    watch_s: float | None = None
    watch_count: int | None = None
    dry_run: bool = False
    yes: bool = False

    def taken_over(self, options: dict[str, Any]) -> CommandFrame:
        """Return the frame with what was said behind the name; that is taken out of ``options``."""
        said = {name: options.pop(name) for name in _FRAME_NAMES if name in options}
        merged = {name: getattr(self, name) for name in _FRAME_NAMES}
        merged |= {name: value for name, value in said.items() if value not in (None, False)}
        return CommandFrame(**merged)


_FRAME_NAMES: Final = tuple(CommandFrame.__dataclass_fields__)


interval_option: Final = click.option(
    "-i",
    "--interval",
    "--watch",
    "watch_s",
    type=click.FloatRange(min=WATCH_MIN_S),
    metavar="SECONDS",
    help="Ask again and again, so many seconds apart.",
)
"""The letter that some commands of mqadmin have for what is ``--watch`` of all commands here."""


def frame_options(
    *, has_output_letter: bool, changes: bool, asks: bool = True
) -> list[click.Option]:
    """Return the options that commands share; one that asks before a change cannot be watched.

    Where mqadmin gives the letter ``o`` a meaning of its own, ``--output`` has none.
    """
    output = ["-o", "--output"] if has_output_letter else ["--output"]
    options = [
        click.Option(["-n", "--namesrv"], metavar="ADDRS", help="Name servers, ; between them."),
        click.Option(["--context"], metavar="NAME", help="A cluster of `flintmq context`."),
        click.Option([*output, "output"], type=click.Choice(FORMS), help="Form of the output."),
        click.Option(
            ["--timeout", "timeout_s"],
            type=click.FloatRange(min=0.1, max=3600),
            metavar="SECONDS",
            help=f"How long a server may take to answer; {TIMEOUT_S:g} unless given.",
        ),
        click.Option(["--debug"], is_flag=True, help="Show where in the code an error arose."),
    ]
    if changes:
        options += [
            click.Option(["--dry-run"], is_flag=True, help="Show what would change; do nothing."),
            click.Option(["--yes"], is_flag=True, help="Do not ask."),
        ]
    if changes and asks:
        return options
    return [
        *options,
        click.Option(
            ["--watch", "watch_s"],
            type=click.FloatRange(min=WATCH_MIN_S),
            metavar="SECONDS",
            help="Ask again and again, so many seconds apart.",
        ),
        click.Option(
            ["--watch-count"],
            type=click.IntRange(min=1),
            help="How often --watch asks.",
            hidden=True,
        ),
    ]


class _AdminCommand(click.Command):
    """A command that says how to ask for JSON where mqadmin has another use for the letter o."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        has_form = any(one in FORMS for one in args)
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            if not has_form or error.param is None or "-o" not in error.param.opts:
                raise
            text = f"{error.message} The form of the output is --output here."
            raise click.BadParameter(text, ctx=error.ctx, param=error.param) from error


def admin_command(
    name: str, *, changes: bool = False, asks: bool = True
) -> Callable[[Work], click.Command]:
    """Make a command of a coroutine function; its docstring is the help.

    The last word of ``name`` is that of the command itself, within a group of commands.

    ``changes`` says that it changes something; such a command asks first, unless ``asks`` is false.
    """

    def decorate(work: Work) -> click.Command:
        own = list(reversed(getattr(work, "__click_params__", [])))
        letters = {letter for parameter in own for letter in parameter.opts}
        shared = frame_options(has_output_letter="-o" not in letters, changes=changes, asks=asks)
        free = [one for one in shared if not letters.intersection(one.opts)]

        @functools.wraps(work)
        @click.pass_context
        def run(context: click.Context, /, **options: Any) -> int:
            before = context.obj if isinstance(context.obj, CommandFrame) else CommandFrame()
            frame = before.taken_over(options)
            return _Running(name, work, options, frame, changes=changes, asks=asks).run()

        return _AdminCommand(
            name.split()[-1],
            callback=run,
            params=[*own, *free],
            help=work.__doc__,
            no_args_is_help=False,
        )

    return decorate


class _Running:
    """One call of a command."""

    def __init__(
        self,
        name: str,
        work: Work,
        options: dict[str, Any],
        frame: CommandFrame,
        *,
        changes: bool,
        asks: bool,
    ) -> None:
        self._name = name
        self._work = work
        self._options = options
        self._frame = frame
        self._changes = changes
        self._asks = asks

    def run(self) -> int:
        """Run the command and return its exit code; an error is one line."""
        try:
            return asyncio.run(self._run())
        except OutputClosedError:
            raise  # Whoever read the output has seen enough.
        except FlintError as error:
            if self._frame.debug:
                traceback.print_exc()
            complain(error)
            return exit_code_of(error)

    async def _run(self) -> int:
        frame = self._frame
        options = client_options(
            namesrv=frame.namesrv, context=frame.context, timeout_ms=round(frame.timeout_s * 1000)
        )
        async with AsyncAdmin(options=options) as admin:
            if self._changes and self._asks:
                return await self._change(admin)
            if frame.watch_s is None:
                return self._show(await self._call(admin))
            return await self._watch(admin, frame.watch_s)

    async def _call(self, admin: AsyncAdmin) -> CommandReport:
        if self._changes:
            return await self._work(admin, dry_run=self._frame.dry_run, **self._options)
        return await self._work(admin, **self._options)

    async def _watch(self, admin: AsyncAdmin, seconds: float) -> int:
        code, left = EXIT_FINE, self._frame.watch_count
        while True:
            began = time.monotonic()
            report = await self._call(admin)
            if sys.stdout.isatty() and self._frame.output == "table":
                write_line(CLEAR)
            code = self._show(report)
            sys.stdout.flush()
            if left is not None:
                left -= 1
                if left <= 0:
                    return code
            await asyncio.sleep(max(began + seconds - time.monotonic(), 0))

    async def _change(self, admin: AsyncAdmin) -> int:
        frame = self._frame
        if not frame.dry_run and not frame.yes:
            plan = await self._work(admin, dry_run=True, **self._options)
            if not any(map(_is_planned, plan.rows)):
                return self._show(plan)
            if not _agreed(self._name, plan):
                click.echo(
                    "flintmq: nothing was changed; say --yes to change it, "
                    "--dry-run to see what would change",
                    err=True,
                )
                return EXIT_USAGE
        return self._show(await self._call(admin))

    def _show(self, report: CommandReport) -> int:
        for line in report_lines(self._name, report, self._frame.output):
            write_line(line)
        failures = list(report.failures)
        changes = [one for one in report.rows if isinstance(one, AdminChange)]
        failures += [(one.target, one.error) for one in changes if one.error is not None]
        told = set[tuple[str, str]]()
        for where, error in failures:
            # What a broker says of each queue or message is told once.
            if (where, str(error)) not in told:
                told.add((where, str(error)))
                complain(error, where)
        return report.code


def _is_planned(row: object) -> bool:
    if isinstance(row, ReplayOutcome):
        return row.outcome == PLANNED
    return isinstance(row, AdminChange) and row.outcome is ChangeOutcome.PLANNED


def _agreed(name: str, plan: CommandReport) -> bool:
    """Show a plan on stderr and ask; without a terminal nobody can agree."""
    for line in report_lines(name, plan, "table"):
        click.echo(line, err=True)
    return sys.stdin.isatty() and click.confirm("Do it?", err=True)


def complain(error: FlintError, where: str = "") -> None:
    """Tell an error on one line: the cause and, where it is known, the next step."""
    step = ""
    if isinstance(error, NoNameServerError):
        step = "; see -n, --context and NAMESRV_ADDR, and whether the name server runs"
    elif isinstance(error, ConnectError):
        step = "; see whether it runs and can be reached from here"
    elif isinstance(error, AnswerTimeoutError):
        step = "; see whether it hangs, or give it more time with --timeout"
    elif isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        step = "; its release, which clusterList shows, has no such request"
    text = " ".join(f"{where}: {error}".split() if where else str(error).split())
    click.echo(f"flintmq: {printable(text)}{step}", err=True)
