"""Pulls that wait are held alike by machine code's walk, by the fast path and by the processor.

Messages come, topics and groups change and go while they wait: whoever holds a pull, it gets the
same answer, and the tables are the same afterwards.
"""

import asyncio
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintmq.broker.pulling import pull_fast_path
from flintmq.broker.sending import send_fast_path
from flintmq.format.subscription import build_subscription
from flintmq.format.wire.bodies.heartbeat import (
    MESSAGE_MODELS,
    ConsumerData,
    Heartbeat,
    encode_heartbeat,
)
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command, decode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.remoting import turn_inbox
from flintmq.store.append_group import encoder_choice
from flintmq.store.reading import read_engines
from tests.kits.broker.at_once import AtOnce
from tests.kits.broker.broker_kit import eventually
from tests.kits.broker.fed_broker import FedBroker, chunks_of, fed_broker
from tests.kits.broker.pulled_broker import LEFT_AFTER, SETTINGS, send
from tests.kits.broker.remoting_kit import run_within

GROUPS: Final = ("g", "h")
TURNS_MAX: Final = 100


def request(code: RequestCode, body: bytes = b"", **fields: str) -> dict[str, Any]:
    return {"code": int(code), "ext_fields": fields, "body": body}


def heartbeat(group: str, expression: str, version: int) -> dict[str, Any]:
    subscription = build_subscription("T", expression, version=version)
    consumer = ConsumerData(
        group=group, subscriptions=(subscription,), message_model=MESSAGE_MODELS[1]
    )
    beat = Heartbeat(client_id="c", producer_groups=(), consumers=(consumer,))
    return request(RequestCode.HEART_BEAT, encode_heartbeat(beat))


def topic_change(queue_count: int, perm: int) -> dict[str, Any]:
    return request(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic="T",
        defaultTopic="TBW102",
        perm=str(perm),
        order="false",
        readQueueNums=str(queue_count),
        writeQueueNums=str(queue_count),
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
    )


def group_change(group: str, *, enabled: bool) -> dict[str, Any]:
    members = {"groupName": group, "consumeEnable": enabled}
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return request(code, json.dumps(members).encode())


def settings_change(text: str) -> dict[str, Any]:
    return request(RequestCode.UPDATE_BROKER_CONFIG, text.encode())


LEAVE: Final = request(
    RequestCode.UNREGISTER_CLIENT, clientID="c", producerGroup="", consumerGroup="g"
)
DELETE_TOPIC: Final = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
changes = st.one_of(
    st.builds(heartbeat, st.sampled_from(GROUPS), st.sampled_from("*AB"), st.integers(0, 9)),
    st.builds(topic_change, st.sampled_from([1, 4]), st.sampled_from([2, 6, 6])),
    st.builds(group_change, st.sampled_from(GROUPS), enabled=st.sampled_from([True, True, False])),
    st.just(LEAVE),
    st.just(request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g")),
    st.just(DELETE_TOPIC),
    st.builds(
        settings_change,
        st.sampled_from(
            [
                "longPollingEnable=false",
                "longPollingEnable=true",
                "maxTransferCountOnMessageInMemory=3",
            ]
        ),
    ),
)


@st.composite
def conversations(draw: st.DrawFn, *, is_sync: bool = False) -> list[list[dict[str, Any]]]:
    """Draw what some reads bring; most pulls ask for the end of their queue.

    With synchronous flush no read brings pulls and sends: the disk decides which come first.
    """
    ends = [0, 0]
    reads: list[list[dict[str, Any]]] = []

    def one_send() -> dict[str, Any]:
        queue_id = draw(st.integers(0, 1))
        ends[queue_id] += 1
        return send(queue_id, draw(st.sampled_from([10, 300])), draw(st.sampled_from("AB")))

    def one_pull() -> dict[str, Any]:
        queue_id = draw(st.integers(0, 1))
        at = draw(st.sampled_from([0, 0, 0, 0, 0, -1, 1, -3]))
        fields = {
            "consumerGroup": draw(st.sampled_from(GROUPS)),
            "topic": "T",
            "queueId": str(queue_id),
            "queueOffset": str(max(ends[queue_id] + at, 0)),
            "maxMsgNums": "5",
            "sysFlag": draw(st.sampled_from(["6", "6", "7", "2", "3", "4"])),
            "commitOffset": str(draw(st.integers(0, 9))),
            "suspendTimeoutMillis": "100000",
            "subscription": draw(st.sampled_from("**A")),
            "subVersion": "0",
            "expressionType": "TAG",
        }
        return {"code": int(RequestCode.PULL_MESSAGE), "ext_fields": fields}

    reads.append([one_send() for _ in range(12)] + [heartbeat("g", "*", 1)])
    reads += [[one_pull() for _ in range(4)] for _ in range(3)]
    for _ in range(draw(st.integers(2, 10))):
        kind = draw(st.integers(0, 3))
        if kind:
            makers = [one_pull, one_pull, one_send] if kind < 3 else [one_pull]
            if is_sync:
                makers = [draw(st.sampled_from(makers))]
            count = draw(st.integers(1, 8))
            reads.append([draw(st.sampled_from(makers))() for _ in range(count)])
            continue
        # Alone, since it may take more than a turn of the loop.
        change = draw(changes)
        reads.append([change])
        if change == DELETE_TOPIC:
            ends[:] = 0, 0
    return reads


def frames_of(answers: bytes) -> list[Command]:
    decoder = FrameDecoder()
    decoder.feed(answers)
    found = []
    while (frame := decoder.next_frame()) is not None:
        found.append(decode_command(frame))
    return found


def _is_answered(fed: FedBroker, opaque: int) -> bool:
    return any(one.opaque == opaque and one.flag & 1 for one in frames_of(fed.answers))


async def serve(
    root: Path, chunks: list[bytes], *, way: str, more: dict[str, str]
) -> tuple[dict[int, Command], dict[str, Any]]:
    """Feed a broker with reads; return its answers, and what it has kept and counted."""
    gather, inbox = way != "plain", way in ("walked", "at once")
    async with fed_broker(root, SETTINGS | more, gather=gather, inbox=inbox) as fed:
        context = fed.broker.context
        left: dict[str, Any] = {"held after each": []}
        for chunk in chunks:
            await fed.feed_and_wait(chunk)
            first = frames_of(chunk)[0]
            if first.code not in (RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2):
                await eventually(partial(_is_answered, fed, first.opaque))
            # Those whose messages have come are answered in several turns, if that takes long.
            for _ in range(TURNS_MAX):
                await asyncio.sleep(0)
            left["held after each"].append(context.held.count)
        left |= {name: getattr(context.store.statistics, name) for name in LEFT_AFTER}
        left["offsets"] = [dict(context.offsets.queues(group, "T")) for group in GROUPS]
        left["fetched"] = [dict(context.fetched.queues(group, "T")) for group in GROUPS]
        left["pulled"] = context.statistics.get_total
        host = context.store_host
        written = fed.answers.replace(host, bytes(len(host)))
        written = written.replace(host.hex().upper().encode(), b"0" * 2 * len(host))
        answers = frames_of(written)
    return {one.opaque: one for one in answers if one.flag & 1}, left


def assert_alike(chunks: list[bytes], more: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        for module in (pull_fast_path, send_fast_path, encoder_choice, read_engines):
            patch.setattr(module, "LoadOnDemand", AtOnce)
        ways = []
        for way in ("plain", "fast", "walked", "at once"):
            patch.setattr(turn_inbox, "PULLS_KEPT", 0 if way == "at once" else 1 << 40)
            ways.append(run_within(serve(Path(name, way), chunks, way=way, more=more), 60))
        plain, *others = ways
    for answers, left in others:
        assert left == plain[1]
        assert answers.keys() == plain[0].keys()
        for opaque, answer in answers.items():
            assert answer == plain[0][opaque]


MODES: Final[list[dict[str, str]]] = [
    {},
    {"longPollingEnable": "false", "shortPollingTimeMills": "100000"},
    {"maxHeldPulls": "3"},
    {"machineCode": "false"},
    {"flushDiskType": "SYNC_FLUSH"},
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, str], list[list[dict[str, Any]]]]:
    """Draw settings, and a conversation that fits them."""
    mode = draw(st.sampled_from(MODES))
    return mode, draw(conversations(is_sync="flushDiskType" in mode))


@given(case=cases(), header_type=st.sampled_from([HeaderType.JSON] * 4 + [HeaderType.ROCKETMQ]))
@settings(
    max_examples=20,
    deadline=None,
    # Three brokers for each example: making a failing one small would take minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_pulls_that_wait_are_held_and_answered_alike(
    case: tuple[dict[str, str], list[list[dict[str, Any]]]], header_type: HeaderType
) -> None:
    mode, reads = case
    assert_alike(chunks_of(reads, header_type), mode)


def test_a_pull_that_may_not_wait_is_counted_once() -> None:
    """The fast path leaves it to the processor, which counts the read."""
    sends = [send(0, 10) for _ in range(3)]
    at_the_end = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "3",
        "maxMsgNums": "5",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "100000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    pull = {"code": int(RequestCode.PULL_MESSAGE), "ext_fields": at_the_end}
    reads = [sends, *[[pull]] * 4, [send(0, 10)]]
    assert_alike(chunks_of(reads, HeaderType.JSON), {"maxHeldPulls": "1"})
