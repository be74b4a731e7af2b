"""The tables of a broker: topics, groups, offsets, filters, clients, locked queues."""

__all__ = [
    "client_tables",
    "fetched_table",
    "filter_table",
    "group_table",
    "offset_table",
    "queue_lock_table",
    "topic_table",
]
