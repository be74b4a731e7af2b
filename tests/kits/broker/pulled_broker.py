"""A broker of small files and small answers for tests of pulls, and what is sent to it."""

from typing import Any, Final

from flintmq.format.wire.codes import RequestCode

SETTINGS: Final = {
    "listenPort": "0",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": "8192",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "50",
    "maxIndexNum": "400",
    "maxMessageSize": "3000",
    "maxTransferCountOnMessageInMemory": "12",
    "maxTransferBytesOnMessageInMemory": "2500",
    "transactionCheckInterval": "1000000",
}
LEFT_AFTER: Final = ("found_count", "missed_count", "transferred_count")
"""What reads leave in the statistics of the store."""


def send(queue_id: int, size: int, tag: str = "A") -> dict[str, Any]:
    fields = dict.fromkeys("efghj", "0") | {"a": "pg", "b": "T", "c": "TBW102", "d": "4"}
    fields |= {"e": str(queue_id), "i": f"TAGS\x01{tag}\x02", "k": "false", "m": "false"}
    return {"code": 310, "ext_fields": fields, "body": b"b" * size}


def pull(**given_fields: str) -> dict[str, Any]:
    """Return a pull of all messages of a queue, which waits for them if it may."""
    fields = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "5",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "100000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return {"code": int(RequestCode.PULL_MESSAGE), "ext_fields": fields | given_fields}
