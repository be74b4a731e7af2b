"""Which queues a consumer has, what it holds of each, and how far it has come."""

__all__ = [
    "assigned_queue",
    "assignment",
    "broker_locks",
    "consume_from",
    "group_member",
    "local_offsets",
    "offset_store",
    "process_queue",
    "sharing",
    "strategies",
    "subscriptions",
]
