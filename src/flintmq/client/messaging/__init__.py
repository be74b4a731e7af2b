"""Messages as users see them, their envelopes, ids and replies."""

__all__ = [
    "envelope",
    "message_checks",
    "message_decoding",
    "messages",
    "request_reply",
    "transaction_listener",
    "unique_ids",
]
