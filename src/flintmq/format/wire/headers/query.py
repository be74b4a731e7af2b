"""Headers of looking messages up."""

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header


@header
class QueryMessageRequest(Header, wire_names={"unique_key_query": "_UNIQUE_KEY_QUERY"}):
    """Asks for the messages of a key, or of a unique id."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = None


@header
class QueryMessageResponse(Header):
    """How far the key index has come."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@header
class ViewMessageRequest(Header):
    """Asks for the record at a physical offset."""

    offset: Int64


@header
class QueryConsumeQueueRequest(Header):
    """Asks for units of a consume queue, judged by a group's filter if one is named."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None
