"""The JSON bodies of requests and answers, one module per family."""

__all__ = [
    "delays",
    "dialect",
    "groups",
    "heartbeat",
    "registration",
    "routes",
    "topics",
]
