"""A clock that stands still until a test turns it."""


class ManualClock:
    """A ``Clock`` in the hands of a test.

    The wall clock can be set to any time; the monotonic clock only goes forward, with ``advance``.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the seconds this clock was advanced by."""
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass."""
        assert ms >= 0, ms
        self._now_ms += ms
        self._elapsed_ms += ms

    def set(self, now_ms: int) -> None:
        """Make the wall clock jump to ``now_ms``, in either direction."""
        self._now_ms = now_ms
