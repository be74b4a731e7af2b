"""What a broker knows of a consumer group."""

from flintmq.model.value_class import Value, value_class


@value_class
class GroupConfig(Value):
    """The configuration of one subscription group on one broker."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_count: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    slow_broker_id: int = 1
    """Which broker a group that has fallen behind is sent to."""
    notify_ids_changed_enable: bool = True
