"""What waits in a broker: pulls for messages, answers for the disk."""

__all__ = [
    "awaited_queue",
    "cold_loads",
    "durable_puts",
    "held_pull",
    "held_pulls",
    "large_batches",
    "late_sends",
    "old_requests",
    "packed_sends",
    "positions",
    "replicated_puts",
    "saved_answers",
    "slave_promise",
]
