"""The ``flintmq`` command: arguments, logging, progress, exit codes."""

__all__ = [
    "collector_pause",
    "main",
]
