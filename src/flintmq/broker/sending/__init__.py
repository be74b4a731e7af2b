"""Sends: what a request brings, the fast path for plain ones, their answers."""

__all__ = [
    "batch_bodies",
    "gathered_send",
    "known_headers",
    "put_answers",
    "received_messages",
    "received_properties",
    "send_admission",
    "send_fast_path",
    "stored_answer",
]
