"""Lines on standard output."""

import sys

from flintmq.errors import FlintError


class OutputClosedError(FlintError):
    """The reader of the output has closed it."""


def write_line(text: str) -> None:
    """Write one line."""
    # click.echo would flush after every line, and click takes a closed pipe for a failure.
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError as error:
        raise OutputClosedError from error
