"""The ``flintmq`` command."""

import io
import os
import sys
from collections.abc import Sequence

import click

from flintmq import __version__
from flintmq.cli.exit_codes import EXIT_INTERRUPTED, EXIT_UNREADABLE
from flintmq.cli.output import OutputClosedError
from flintmq.cli.pipeline import pipeline
from flintmq.cli.serving import broker_command, namesrv_command, serve_command
from flintmq.cli.store import store
from flintmq.cli.text import printable
from flintmq.errors import FlintError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flintmq")
def flintmq() -> None:
    """FlintMQ: Apache RocketMQ 4.9, rebuilt in Python."""


flintmq.add_command(serve_command)
flintmq.add_command(namesrv_command)
flintmq.add_command(broker_command)
flintmq.add_command(store)
flintmq.add_command(pipeline)


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
