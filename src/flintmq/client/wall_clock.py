"""The time of day as clients use it."""

import time


def wall_ms() -> int:
    """Return the milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return a time that only goes forward, in milliseconds."""
    return time.monotonic_ns() // 1_000_000
