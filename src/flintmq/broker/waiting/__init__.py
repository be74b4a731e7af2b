"""What waits in a broker: pulls for messages, answers for the disk."""

__all__ = [
    "cold_loads",
    "durable_puts",
    "held_pulls",
    "late_sends",
    "old_requests",
    "positions",
    "replicated_puts",
    "saved_answers",
    "slave_promise",
]
