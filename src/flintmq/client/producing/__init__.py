"""The producer: it chooses queues and brokers, and tries again what failed."""

__all__ = [
    "batch_failure",
    "producer",
    "producer_settings",
    "queue_choice",
    "thread_sends",
]
