"""Transactions: half messages, how they end, and asking about those that nobody ended."""

__all__ = [
    "ending",
    "half_messages",
    "transaction_check",
]
