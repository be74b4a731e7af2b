"""Failover by hand: a slave is made a master, and the old master comes back as a slave."""

__all__ = [
    "promotion",
    "rejoin",
]
