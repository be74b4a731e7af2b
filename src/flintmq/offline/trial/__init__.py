"""The trial of a start: the real one, on files whose changes stay in this process."""

__all__ = [
    "trial_start",
]
