"""Headers of pulling messages."""

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header


@header
class PullMessageRequest(Header, wire_names={"broker_name": "bname"}):
    """Asks for messages of one queue from an offset on."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    broker_name: str | None = None


@header
class PullMessageResponse(Header):
    """Where to pull next; answers of codes 0, 19, 20 and 21 have it."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
