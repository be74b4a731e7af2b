"""One stored message in full, as the tools print it.

The field names are those RocketMQ's own classes use, so that the lines can be compared with what
a Java program says about the same store.
"""

import functools
import hashlib
from typing import Any, Final

from flintmq.format.compression import decompress
from flintmq.format.delay_levels import DelayLevels
from flintmq.format.errors import CompressionError
from flintmq.format.host import host_text
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.format.stored.dispatch_fields import BadDelayLevelError, dispatch_tags_code
from flintmq.format.stored.record import Record
from flintmq.format.sys_flag import COMPRESSED, TRANSACTION_PREPARED, compression_type
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.readable_bodies import BODY_SHOWN_MAX, BodyForm, body_fields

BODY_SIZE_MAX: Final = 256 << 20
"""The largest body that is decompressed; Java clients send at most 4 MB unless told otherwise."""


HOSTS_CACHED_MAX: Final = 4096
_cached_host_text: Final = functools.lru_cache(maxsize=HOSTS_CACHED_MAX)(host_text)


class MessageFields:
    """Collects what the log, the consume queue and its extension say about a message."""

    def __init__(
        self,
        queues: QueueFiles,
        *,
        delay_levels: DelayLevels,
        body_form: BodyForm | None = None,
        body_shown_max: int = BODY_SHOWN_MAX,
    ) -> None:
        """Describe messages, with their bodies if ``body_form`` says how."""
        self._queues = queues
        self._delay_levels = delay_levels
        self._body_form = body_form
        self._body_shown_max = body_shown_max

    def of(self, record: Record) -> dict[str, Any]:
        """Return all fields of a message.

        ``tagsCode`` is None while the message has no unit.  ``ext`` is there only if the unit
        leads to one, ``crcOk`` only if it is false, ``bodyError`` only if the body does not
        decompress, in which case its length and digest are None.
        """
        fields: dict[str, Any] = {
            "physicalOffset": record.physical_offset,
            "size": record.size,
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "sysFlag": record.sys_flag,
            "flag": record.flag,
            "bornTimestamp": record.born_timestamp,
            "bornHost": _cached_host_text(record.born_host),
            "storeTimestamp": record.store_timestamp,
            "storeHost": _cached_host_text(record.store_host),
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "bodyCRC": record.body_crc,
            "storedBodyLength": len(record.body),
        }
        fields |= self._body_fields(record)
        fields["properties"] = record.properties
        fields["msgId"] = record.message_id
        fields["dispatchTagsCode"] = self._dispatch_code(record)
        fields |= self._unit_fields(record)
        if not record.crc_ok:
            fields["crcOk"] = False
        return fields

    def _dispatch_code(self, record: Record) -> int:
        topic, text, time = record.topic.encode(), record.properties_text, record.store_timestamp
        try:
            return dispatch_tags_code(topic, text, time, self._delay_levels)
        except BadDelayLevelError as error:
            return error.fields[0]

    def _unit_fields(self, record: Record) -> dict[str, Any]:
        key = (record.topic, record.queue_id)
        unit = None
        if not record.sys_flag & TRANSACTION_PREPARED and record.queue_offset >= 0:
            unit = self._queues.unit_at(key, record.queue_offset)
        if unit is None or unit[0] != record.physical_offset:
            return {"tagsCode": None}
        fields: dict[str, Any] = {}
        if is_address(unit[2]):
            byte_offset, extension = self._queues.extension_unit(key, unit[2])
            if extension is not None:
                fields["ext"] = {
                    "byteOffset": byte_offset,
                    "size": extension.size,
                    "tagsCode": extension.tags_code,
                    "msgStoreTime": extension.store_time,
                    "filterBitMap": extension.bitmap.hex() if extension.bitmap else None,
                }
        fields["tagsCode"] = unit[2]
        return fields

    def _body_fields(self, record: Record) -> dict[str, Any]:
        try:
            body = bytes(record.body)
            if record.sys_flag & COMPRESSED and body:
                body = decompress(body, compression_type(record.sys_flag), limit=BODY_SIZE_MAX)
        except CompressionError as error:
            return {"bodyLength": None, "bodySha256": None, "bodyError": error.reason}
        fields = {"bodyLength": len(body), "bodySha256": hashlib.sha256(body).hexdigest()}
        if self._body_form is not None:
            fields |= body_fields(body, self._body_form, size_max=self._body_shown_max)
        return fields
