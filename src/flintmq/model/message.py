"""Messages on their way into the store."""

from dataclasses import dataclass, field

from flintmq.model.value_class import FieldEquality


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class _Envelope(FieldEquality):
    """What single messages and batches are put with; they need no functions of their own."""

    topic: str
    queue_id: int = 0
    body: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)
    properties_text: bytes | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class PutMessage(_Envelope):
    """One message to be put.

    ``properties_text`` is the encoded property string to store as it is; while it is None,
    ``properties`` are encoded.  Both may be given: what is stored then differs from what the
    store acts on, as when the broker drops WAIT from the text but still obeys it.
    """

    __slots__ = ()


class MessageBatch(_Envelope):
    """Several messages for one queue, put together or not at all.

    ``body`` is the batch body as it came over the wire (see ``flintmq.format.stored.batch``); each
    item in it has its own flag and properties.  ``properties`` are those of the batch, which
    every item gets in addition.
    """

    __slots__ = ()
