"""Replication: a master's log streamed to its slaves, and what a slave follows besides."""

__all__ = [
    "errors",
    "ha_server",
    "master_link",
    "replica",
    "replica_log",
    "slave_link",
    "slave_table",
    "table_sync",
]
