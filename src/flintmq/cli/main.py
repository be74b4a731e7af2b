"""The ``flintmq`` command."""

import io
import os
import sys
from collections.abc import Sequence

import click

import flintmq as package
from flintmq.cli.exit_codes import EXIT_INTERRUPTED, EXIT_UNREADABLE
from flintmq.cli.lazy_group import LazyGroup
from flintmq.cli.output.console import OutputClosedError
from flintmq.errors import FlintError


def _print_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        click.echo(f"flintmq, version {package.__version__}")
        context.exit()


@click.group(
    cls=LazyGroup,
    commands_at={
        "serve": "flintmq.cli.servers.serve_command:serve_command",
        "namesrv": "flintmq.cli.servers.namesrv_command:namesrv_command",
        "broker": "flintmq.cli.servers.broker_command:broker_command",
        "admin": "flintmq.cli.admin.admin_group:admin_group",
        "context": "flintmq.cli.contexts.context_commands:context_group",
        "config": "flintmq.cli.configs.config_commands:config_group",
        "completion": "flintmq.cli.completion_command:completion_command",
        "store": "flintmq.cli.store.store_commands:store_group",
        "pipeline": "flintmq.cli.pipeline.pipeline_group:pipeline",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def flintmq() -> None:
    """FlintMQ: Apache RocketMQ 4.9, rebuilt in Python."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; nothing of it ends in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Whatever a file holds can be printed, if need be as an escape.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = flintmq.main(list(arguments), prog_name="flintmq", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (OutputClosedError, BrokenPipeError):
        _forget_output()
        return 0
    except FlintError as error:
        from flintmq.cli.output.text import printable

        click.echo(f"flintmq: {printable(str(error))}", err=True)
        return EXIT_UNREADABLE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _forget_output() -> None:
    """Send what is still buffered nowhere: whoever read it has seen enough."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
