"""Headers of consumer offsets and of the bounds of queues."""

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header


@header
class QueryConsumerOffsetRequest(Header, wire_names={"broker_name": "bname"}):
    """Asks for the offset a group has committed.

    Clients of 5.x may say that no offset shall be told from offset zero.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    broker_name: str | None = None


@header
class UpdateConsumerOffsetRequest(Header, wire_names={"broker_name": "bname"}):
    """Commits the offset of a group."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    broker_name: str | None = None


@header
class QueueBoundRequest(Header, wire_names={"broker_name": "bname"}):
    """Asks for the minimum or maximum offset of a queue, or its earliest store time."""

    topic: str
    queue_id: Int32
    broker_name: str | None = None


@header
class SearchOffsetRequest(Header, wire_names={"broker_name": "bname"}):
    """Asks for the offset at a store time."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    broker_name: str | None = None


@header
class OffsetResponse(Header):
    """An offset of a queue."""

    offset: Int64


@header
class EarliestStoreTimeResponse(Header):
    """The store time of the oldest message of a queue, or -1."""

    timestamp: Int64
