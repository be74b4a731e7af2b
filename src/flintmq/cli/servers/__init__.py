"""``flintmq namesrv``, ``broker`` and ``serve``."""

__all__ = ["running"]
