"""Messages found by their ids and keys, on whichever brokers have them."""

__all__ = [
    "broker_places",
    "message_finder",
    "message_search",
]
