"""Headers about who is connected, and of the broker's requests to its clients."""

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header


@header
class NoFields(Header):
    """The header of requests and answers that say everything in their body, or nothing."""


@header
class UnregisterClientRequest(Header, wire_names={"client_id": "clientID"}):
    """Takes a client out of its groups."""

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class ConsumerGroupRequest(Header):
    """Asks or tells something about one consumer group: codes 38, 40 and 203."""

    consumer_group: str


@header
class ProducerGroupRequest(Header):
    """Asks for the connections of a producer group."""

    producer_group: str


@header
class ConsumerRunningInfoRequest(Header):
    """Asks a consumer, through its broker, how it is doing."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@header
class ConsumeDirectlyRequest(Header):
    """Has one consumer consume one message now; the broker adds its own name."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


@header
class ResetOffsetRequest(Header):
    """Moves a group to a time; codes 220 (to clients) and 222 (to brokers)."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False


@header
class ConsumerStatusRequest(Header):
    """Asks for the offsets that clients of a group have reached; codes 221 and 223."""

    topic: str
    group: str
    client_addr: str | None = None


@header
class PushReplyRequest(Header):
    """Brings the reply to a request message to the client that waits for it."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64
