"""Name servers and routes: asking for them, keeping them fresh, and why one is missing."""

__all__ = [
    "name_servers",
    "queue_lists",
    "route_cache",
    "route_causes",
]
