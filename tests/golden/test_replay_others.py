"""The recorded conversations of other runs than the longest one, answered as they were.

``vip``, ``trace`` and ``admin-raw`` are of one run, in which a consumer and a producer were online
whose arrival was not recorded.  In ``mixed`` only the client writes binary headers.
"""

import itertools
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.format.subscription import build_subscription
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.bodies.heartbeat import ConsumerData, Heartbeat, encode_heartbeat
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.offsets import UpdateConsumerOffsetRequest
from flintmq.format.wire.headers.send import SendMessageRequestV2
from tests.kits.golden.recorded_frames import Recorded, conversation
from tests.kits.golden.replay_peer import Peer
from tests.kits.golden.replay_rules import Allowed, unexpected
from tests.kits.golden.replaying import UNRECORDED_TOPICS, Replay, replay

DEADLINE_S: Final = 60
FAST_CHANNEL: Final = -2
"""Where the port of the fast channel is."""
ONLINE_RUN: Final = ("vip", "trace", "admin-raw")
ONLINE_GROUP: Final = "golden-group-online"
ONLINE_PRODUCER: Final = 999
"""The number of a connection that was not recorded."""
JAVA_VERSION: Final = 407
_OPAQUES: Final = itertools.count(1_000_000)
MIXED_RUN: Final = (
    "admin-updateTopic",
    "producer",
    "push-consumer",
    "pull-consumer",
    "producer-errors",
)
ALLOWED: Final = (
    Allowed(
        "admin-raw",
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        r"body\.consumeTimeSpanSet\.\d\.(\w+TimeStamp(Str)?|delayTime)",
        "when the messages came",
    ),
    Allowed(
        "admin-raw",
        RequestCode.QUERY_CONSUME_QUEUE,
        r"body\.queueData\.1\.physicSize",
        "what the producer sent that was online was not recorded",
    ),
    Allowed(
        "admin-raw",
        RequestCode.GET_BROKER_CONFIG,
        r"fields\.version|body\.(\w+Port|mappedFileSize\w+|max(HashSlot|Index)Num|storePath\w+"
        r"|rocketmqHome|transaction(CheckInterval|TimeOut))",
        "settings of that broker, and of the replay",
    ),
    Allowed(
        "admin-raw",
        RequestCode.GET_BROKER_CONFIG,
        r"body\.(enableCalcFilterBitMap|expectConsumerNumUseFilter|maxErrorRateOfBloomFilter"
        r"|autoDeleteUnusedStats)",
        "filter bits and statistics are no settings of the broker",
    ),
    Allowed(
        "admin-raw",
        RequestCode.GET_BROKER_CONFIG,
        r"body\.(bindAddress|configBlackList)",
        "our own, and one that came with 4.9.8",
    ),
    Allowed(
        "admin-raw",
        RequestCode.GET_NAMESRV_CONFIG,
        r"body\.(bindAddress|brokerTimeoutMillis|scanNotActiveBrokerInterval|\w+Path|rocketmqHome"
        r"|listenPort)",
        "our own settings, paths and a port",
    ),
    Allowed(
        "admin-raw",
        RequestCode.UPDATE_BROKER_CONFIG,
        "code|remark",
        "4.9.7 lets a path be changed, and a setting that nobody knows",
    ),
)
OWN_NOTATION: Final = tuple(
    Allowed(
        ".*", code, "notation", "that broker was told to write its own requests in the binary form"
    )
    for code in (
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    )
)
ALLOWED_IN_MIXED: Final = (
    *(
        Allowed(
            ".*-consumer|producer-errors",
            code,
            "notation",
            "an answer with messages, or to a pull that waited, is in Java's own notation; ours is"
            " in that of the request",
        )
        for code in (
            RequestCode.PULL_MESSAGE,
            RequestCode.QUERY_MESSAGE,
            RequestCode.VIEW_MESSAGE_BY_ID,
        )
    ),
    Allowed(
        "producer-errors",
        RequestCode.SEND_MESSAGE_V2,
        r"fields\.(MSG_REGION|TRACE_ON)",
        "a request without its fields is refused before anything looks at it",
    ),
)


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("notation", ["json", "rocketmq"])
async def test_fast_channel_trace_and_raw_requests_are_answered_as_they_were(
    notation: str, tmp_path: Path
) -> None:
    async with replay(tmp_path, notation, ONLINE_RUN) as playing:
        await playing.prepare({"golden-orders": 4, "golden-tx": 4})
        playing.ports["broker"] += FAST_CHANNEL
        found = await playing.play("vip")
        playing.ports["broker"] -= FAST_CHANNEL
        found += await playing.play("trace")
        await bring_online(playing, conversation(f"{notation}/admin-raw"))
        found += await playing.play("admin-raw")
        compared = playing.compared
    rules = ALLOWED if notation == "json" else (*ALLOWED, *OWN_NOTATION)
    assert unexpected(found, rules) == []
    assert compared >= 105


@pytest.mark.deadline(DEADLINE_S)
async def test_a_binary_client_of_json_servers_is_answered_as_it_was(tmp_path: Path) -> None:
    async with replay(tmp_path, "mixed", MIXED_RUN) as playing:
        await playing.prepare(UNRECORDED_TOPICS)
        found = [one for name in MIXED_RUN for one in await playing.play(name)]
        compared = playing.compared
    assert unexpected(found, ALLOWED_IN_MIXED) == []
    assert compared >= 101
    assert all(any(rule.covers(one) for one in found) for rule in ALLOWED_IN_MIXED)


async def bring_online(playing: Replay, raw: tuple[Recorded, ...]) -> None:
    """Do what the two clients did that were online, as far as the answers tell of it."""
    (consumer_id,) = _answer(raw, RequestCode.GET_CONSUMER_LIST_BY_GROUP)["consumerIdList"]
    producers = _answer(raw, RequestCode.GET_ALL_PRODUCER_INFO)["data"]
    asked = next(
        one for one in raw if one.line["code"] == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    )
    producer, consumer = await playing.peer(ONLINE_PRODUCER), await playing.peer(asked.line["conn"])
    sender = f"{ONLINE_GROUP}-producer"
    inner = "CLIENT_INNER_PRODUCER"
    beat = Heartbeat(
        client_id=producers[sender][0]["clientId"], producer_groups=(sender, inner), consumers=()
    )
    await _ask(producer, RequestCode.HEART_BEAT, body=encode_heartbeat(beat))
    subscription = build_subscription("golden-orders", "*", version=1)
    data = ConsumerData(group=ONLINE_GROUP, subscriptions=(subscription,))
    beat = Heartbeat(client_id=consumer_id, producer_groups=(inner,), consumers=(data,))
    await _ask(consumer, RequestCode.HEART_BEAT, body=encode_heartbeat(beat))
    send = SendMessageRequestV2(
        producer_group=sender,
        topic="golden-orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties="TAGS\x01TagA",
    )
    await _ask(producer, RequestCode.SEND_MESSAGE_V2, send.encode(), b"online")
    table = _answer(raw, RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    for place, offsets in table.items():
        topic, _, group = place.partition("@")
        for queue_id, offset in offsets.items() if group == ONLINE_GROUP else ():
            commit = UpdateConsumerOffsetRequest(
                consumer_group=group, topic=topic, queue_id=int(queue_id), commit_offset=offset
            )
            await _ask(consumer, RequestCode.UPDATE_CONSUMER_OFFSET, commit.encode())


def _answer(raw: tuple[Recorded, ...], code: int) -> Any:
    """Return the recorded body of the first answer to a request that has one."""
    bodies = (one.command.body for one in raw if one.line.get("requestCode") == code)
    return loads_body(next(filter(None, bodies)))


async def _ask(
    peer: Peer, code: int, fields: dict[str, str] | None = None, body: bytes = b""
) -> None:
    opaque = next(_OPAQUES)
    request = Command(
        code=code, opaque=opaque, ext_fields=fields or {}, body=body, version=JAVA_VERSION
    )
    peer.send(request)
    answer = await peer.answer(opaque)
    assert answer.code == ResponseCode.SUCCESS, answer
