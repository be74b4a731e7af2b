"""``flintmq namesrv``, ``broker`` and ``serve``."""
