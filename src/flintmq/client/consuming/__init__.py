"""The push consumer: it pulls messages and hands them to a handler."""

__all__ = [
    "consume_hooks",
    "handlers",
    "push_consumer",
    "push_settings",
]
