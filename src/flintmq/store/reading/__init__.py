"""Reading: messages of a queue, lookups by time and key."""

__all__ = [
    "cold_reads",
    "entered_records",
    "message_filter",
    "store_reader",
]
