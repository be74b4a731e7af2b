"""The test vectors of the specification, as bytes and as puts."""

from typing import Any

from flintmq.format.host import pack_host
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult
from tests.kits.store.store_kit import (
    batch,
    message,
)

V6_BORN = pack_host("2001:db8::1", 54321)

V6_STORE = pack_host("2001:db8::2", 10911)


R1 = (
    "000000b0daa320a769c865ed0000000300000000"
    "0000000000000000000000000000000000000000"
    "0000018bcfe5687bc0a8010a0000d431"
    "0000018bcfe569c80a00000100002a9f"
    "000000000000000000000000"
    "0000000e48656c6c6f20526f636b65744d51"
    "09546f70696354657374"
    "003e4b455953016b31206b3202554e49515f4b455901433041383031304131463938313842344141433232443242"
    "314132423030303002544147530154616741"
)

BATCH_BODY = (
    "0000002100000000000000000000000000000002623100095441475301546167410000001800000000000000000000"
    "00070000000262320000"
)


def put_vectors(store: MessageStore) -> list[PutResult]:
    """Put R1 to R5 of the specification."""
    topic: dict[str, Any] = {"topic": "TopicTest", "queue_id": 3}
    keys = {"KEYS": "k1 k2", "UNIQ_KEY": "C0A8010A1F9818B4AAC22D2B1A2B0000", "TAGS": "TagA"}
    tag_b = {"TAGS": "TagB"}
    hosts = {"born_host": V6_BORN, "store_host": V6_STORE}
    cluster = {"CLUSTER": "DefaultCluster"}
    return [
        store.put(message(b"Hello RocketMQ", properties=keys, **topic)),
        store.put(message(b"v6", properties=tag_b, **topic, **hosts)),
        store.put_batch(
            batch(**topic, body=bytes.fromhex(BATCH_BODY), properties_of_batch=cluster)
        ),
        store.put(
            message(
                b"delayed",
                topic="TopicTest",
                queue_id=1,
                properties={"DELAY": "3", "TAGS": "TagD"},
            )
        ),
    ]
