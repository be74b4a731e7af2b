"""What goes on beside puts and reads: syncing, expiry, delayed delivery."""

__all__ = [
    "durability",
    "queue_cleaning",
    "retention",
    "schedule",
    "services",
    "waiting_delivery",
    "waiting_progress",
    "waiting_state",
]
