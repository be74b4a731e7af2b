"""The verification of a store directory: its log, queues, index and state files."""

__all__ = [
    "store_verify",
    "verify_queues",
    "verify_state",
]
