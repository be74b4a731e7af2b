"""The clocks of the client: the time of day, and a time that only goes forward."""

import sys
import time


def wall_ms() -> int:
    """Return the milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


if sys.platform == "linux":

    def monotonic_ms() -> int:
        """Return a time that only goes forward, in milliseconds.

        It goes on while the machine sleeps: what expires at a broker has to expire here too.
        """
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

else:

    def monotonic_ms() -> int:
        """Return a time that only goes forward, in milliseconds."""
        return time.monotonic_ns() // 1_000_000


def wall_time_of(moment_ms: int) -> int:
    """Return the time of day at a moment that was read from `monotonic_ms`."""
    return wall_ms() - (monotonic_ms() - moment_ms)
