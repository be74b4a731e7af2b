"""The header with which a consumer gives a message back."""

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header


@header
class SendBackRequest(Header, wire_names={"broker_name": "bname"}):
    """Asks to deliver a failed message again, later.

    A negative delay level sends it to the dead letters, zero lets it grow by the broker's rule.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = None
