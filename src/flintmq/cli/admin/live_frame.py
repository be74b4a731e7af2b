"""The frame of commands that write while they run, instead of a report at their end."""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import click

from flintmq.admin.async_admin import AsyncAdmin
from flintmq.cli.admin.command_frame import CommandFrame, complain, frame_options
from flintmq.cli.admin.command_report import exit_code_of
from flintmq.cli.contexts.context_file import client_options
from flintmq.cli.output.console import OutputClosedError
from flintmq.errors import FlintError

LiveWork: TypeAlias = Callable[..., Awaitable[int]]


def live_command(name: str) -> Callable[[LiveWork], click.Command]:
    """Make a command of a coroutine function; its docstring is the help.

    It gets an open `AsyncAdmin`, the form of output and its options, writes what it finds, and
    returns an exit code.
    """

    def decorate(work: LiveWork) -> click.Command:
        own = list(reversed(getattr(work, "__click_params__", [])))
        shared = frame_options(has_output_letter=True, changes=False)
        free = [one for one in shared if one.name not in ("watch_s", "watch_count")]

        @functools.wraps(work)
        @click.pass_context
        def run(context: click.Context, /, **options: Any) -> int:
            before = context.obj if isinstance(context.obj, CommandFrame) else CommandFrame()
            frame = before.taken_over(options)
            try:
                return asyncio.run(_run(work, frame, options))
            except OutputClosedError:
                raise
            except FlintError as error:
                if frame.debug:
                    traceback.print_exc()
                complain(error)
                return exit_code_of(error)

        return click.Command(name, callback=run, params=[*own, *free], help=work.__doc__)

    return decorate


async def _run(work: LiveWork, frame: CommandFrame, options: dict[str, Any]) -> int:
    settings = client_options(
        namesrv=frame.namesrv, context=frame.context, timeout_ms=round(frame.timeout_s * 1000)
    )
    async with AsyncAdmin(options=settings) as admin:
        return await work(admin, output=frame.output, **options)
