"""The root of every exception this package raises on purpose."""

from typing import ClassVar


class FlintError(Exception):
    """Something went wrong that FlintMQ knows by name."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed later without anything being repaired."""
