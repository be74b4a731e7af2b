"""The message trace: how its lines are sent, and the lines of producers."""

__all__ = [
    "send_trace",
    "trace",
]
