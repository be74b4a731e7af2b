"""Pulls on the fast path get the answers that the processor gives, and leave the same behind."""

import json
import struct
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintmq.broker.pulling.pull_fast_path import PullFastPath
from flintmq.broker.statistics.broker_statistics import (
    BROKER_GET_COUNT,
    GROUP_GET_COUNT,
    GROUP_GET_SIZE,
)
from flintmq.format.subscription import build_subscription
from flintmq.format.wire.bodies.heartbeat import (
    MESSAGE_MODELS,
    ConsumerData,
    Heartbeat,
    encode_heartbeat,
)
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.frame import HeaderType
from flintmq.remoting import ReceivedRequest
from flintmq.remoting.request_table import RequestSource
from tests.kits.broker.fed_broker import chunks_of, fed_broker, without_host
from tests.kits.broker.pulled_broker import LEFT_AFTER, SETTINGS, send
from tests.kits.broker.remoting_kit import run_within


def heartbeat(expression: str, version: int, model: str) -> dict[str, Any]:
    subscription = build_subscription("T", expression, version=version)
    consumer = ConsumerData(group="g", subscriptions=(subscription,), message_model=model)
    beat = Heartbeat(client_id="c", producer_groups=(), consumers=(consumer,))
    return {"code": int(RequestCode.HEART_BEAT), "body": encode_heartbeat(beat)}


def topic_change(read_queue_count: int, perm: int) -> dict[str, Any]:
    fields = {"topic": "T", "defaultTopic": "TBW102", "perm": str(perm), "order": "false"}
    fields |= {"readQueueNums": str(read_queue_count), "writeQueueNums": "4"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    return {"code": int(RequestCode.UPDATE_AND_CREATE_TOPIC), "ext_fields": fields}


def group_change(*, enabled: bool, broadcasts: bool) -> dict[str, Any]:
    members = {"groupName": "g", "consumeEnable": enabled, "consumeBroadcastEnable": broadcasts}
    code = int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    return {"code": code, "body": json.dumps(members).encode()}


kinds = st.fixed_dictionaries(
    {
        "queueId": st.sampled_from(["0", "0", "1"]),
        "maxMsgNums": st.sampled_from(["5", "32"]),
        "sysFlag": st.sampled_from(["4", "5", "0", "2", "6"]),
        "subscription": st.sampled_from(["*", "*", "A", None]),
    }
)
"""What pulls have again and again."""
ODD: Final[dict[str, list[Any]]] = {
    "consumerGroup": ["h", "", None, 7],
    "topic": ["U", "%RETRY%g", "", None],
    "queueId": ["2", "3", "9", "-1", "x", None, 0],
    "queueOffset": ["-1", " 3", "+3", "03", "²", "1_0", "9" * 30, "", None, 3],
    "maxMsgNums": ["0", "-1", "1", "12", "13", "99999999999", None],
    "sysFlag": ["1", "3", "7", "8", "x", None],
    "commitOffset": ["-1", "7", "x", "", None],
    "suspendTimeoutMillis": ["x", None],
    "subscription": ["A||B", "", "||", "none"],
    "subVersion": ["1", "2", "9", "x"],
    "expressionType": [None, "", "SQL92"],
    "bname": ["broker-a", 5, 1.5],
}


@st.composite
def pulls(draw: st.DrawFn, kinds: list[dict[str, Any]]) -> dict[str, Any]:
    """Draw a pull: mostly one that can be plain, else something is odd about it."""
    fields: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueOffset": str(draw(st.integers(0, 25))),
        "commitOffset": str(draw(st.integers(0, 3))),
        "suspendTimeoutMillis": "100000",
        "subVersion": "0",
        "expressionType": "TAG",
    } | draw(st.sampled_from(kinds))
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(["queueOffset"] * 6 + sorted(ODD)))
        fields[name] = draw(st.sampled_from(ODD[name]))
    one: dict[str, Any] = {
        "code": int(RequestCode.PULL_MESSAGE),
        "ext_fields": {name: text for name, text in fields.items() if text is not None},
    }
    if draw(st.integers(0, 19)) == 0:
        one |= {"flag": draw(st.sampled_from([0, 2])), "body": draw(st.binary(max_size=3))}
    return one


sends = st.builds(
    send, st.sampled_from([0, 0, 1, 2]), st.sampled_from([10, 10, 200]), st.sampled_from("AAB")
)
changes = st.one_of(
    st.builds(
        heartbeat, st.sampled_from("*AB"), st.integers(0, 9), st.sampled_from(MESSAGE_MODELS)
    ),
    st.builds(topic_change, st.sampled_from([1, 4]), st.sampled_from([2, 6, 6])),
    st.builds(group_change, enabled=st.sampled_from([True, True, False]), broadcasts=st.booleans()),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Draw what some reads bring: first messages, then pulls of few kinds among other things."""
    some_pulls = pulls(draw(st.lists(kinds, min_size=1, max_size=2)))
    requests = st.integers(0, 11).flatmap(
        lambda number: changes if number < 2 else sends if number < 4 else some_pulls
    )
    filled = draw(st.lists(sends, min_size=10, max_size=60))
    if draw(st.booleans()):
        filled.append(heartbeat("*", 1, MESSAGE_MODELS[1]))
    reads = st.lists(st.lists(requests, min_size=1, max_size=12), min_size=3, max_size=8)
    return [filled, *draw(reads)]


async def serve(
    root: Path, chunks: list[bytes], *, quick: bool
) -> tuple[bytes, bytes, dict[str, Any]]:
    """Feed a broker with reads; return its answers, its address and what it has counted."""
    async with fed_broker(root, SETTINGS, gather=quick) as fed:
        for chunk in chunks:
            fed.feed(chunk)
        context = fed.broker.context
        left = {name: getattr(context.store.statistics, name) for name in LEFT_AFTER}
        left["held"] = context.held.count
        left["offsets"] = dict(context.offsets.queues("g", "T"))
        for name, key in [
            (GROUP_GET_COUNT, "T@g"),
            (GROUP_GET_SIZE, "T@g"),
            (BROKER_GET_COUNT, context.config.cluster),
        ]:
            counter = context.statistics.get(name, key)
            left[name] = counter and (counter.value, counter.times)
        return fed.answers, context.store_host, left


@given(
    reads=conversations(),
    header_type=st.sampled_from([HeaderType.JSON] * 5 + [HeaderType.ROCKETMQ]),
)
@settings(
    max_examples=30,
    deadline=None,
    # Two brokers for each example: making a failing one small would take minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_pulls_on_the_fast_path_are_answered_alike(
    reads: list[list[dict[str, Any]]], header_type: HeaderType
) -> None:
    if header_type is HeaderType.ROCKETMQ:
        reads = [[one for one in read if _is_all_text(one)] for read in reads]
    assert_alike(chunks_of(reads, header_type))


def assert_alike(chunks: list[bytes]) -> None:
    """Serve some reads on the fast path and by the processor, and compare."""
    with tempfile.TemporaryDirectory() as name:
        one, other = Path(name, "quick"), Path(name, "plain")
        quick, host, left = run_within(serve(one, chunks, quick=True), 60)
        plain, other_host, other_left = run_within(serve(other, chunks, quick=False), 60)
        assert without_host(host, quick) == without_host(other_host, plain)
        assert left == other_left


def _is_all_text(one: dict[str, Any]) -> bool:
    return all(isinstance(value, str) for value in one.get("ext_fields", {}).values())


PLAIN: Final = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "5",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
}


def pull(offset: int = 0, sys_flag: int = 4, subscription: str = "*") -> dict[str, Any]:
    more = {"queueOffset": str(offset), "sysFlag": str(sys_flag), "subscription": subscription}
    return {"code": int(RequestCode.PULL_MESSAGE), "ext_fields": PLAIN | more}


@pytest.mark.parametrize(
    "change",
    [
        heartbeat("B", 2, MESSAGE_MODELS[1]),
        heartbeat("*", 1, MESSAGE_MODELS[0]),
        topic_change(0, 6),
        topic_change(4, 2),
        group_change(enabled=False, broadcasts=False),
        {"code": int(RequestCode.DELETE_SUBSCRIPTIONGROUP), "ext_fields": {"groupName": "g"}},
    ],
)
def test_a_known_pull_is_forgotten_with_what_it_depends_on(change: dict[str, Any]) -> None:
    pulls_of_both_kinds = [pull(), pull(sys_flag=0)] * 2
    first = [send(0, 10, "A"), send(0, 10, "B"), group_change(enabled=True, broadcasts=False)]
    first.append(heartbeat("*", 1, MESSAGE_MODELS[1]))
    reads = [first, pulls_of_both_kinds, [change, *pulls_of_both_kinds], pulls_of_both_kinds]
    assert_alike(chunks_of(reads, HeaderType.JSON))


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":[11],"flag":0,"opaque":1}',
        b'{"code":{},"flag":0,"opaque":1}',
        b'{"code":"11","flag":0,"opaque":1}',
        b'{"code":11,"flag":0,"opaque":1,"extFields":[1]}',
        b'{"code":11,"flag":0,"opaque":1,"extFields":{"queueOffset":[1],"commitOffset":{}}}',
        b'{"code":11,"flag":0,"opaque":1099511627776,"extFields":{}}',
        b'{"code":11,"flag":1,"opaque":1,"extFields":{}}',
    ],
)
def test_odd_headers_are_left_to_the_processor(header: bytes) -> None:
    frame = struct.pack(">ii", 4 + len(header), len(header)) + header
    assert_alike([frame])


@pytest.mark.parametrize("header_type", HeaderType)
def test_plain_pulls_take_the_fast_path_at_all(header_type: HeaderType) -> None:
    """Without this the test above would hold for a fast path that never answers anything."""
    chunks = chunks_of(
        [
            [send(0, 10, "A")] * 12 + [heartbeat("A", 1, MESSAGE_MODELS[1])],
            [pull(0, 4, "*"), pull(5, 5, "*"), pull(3, 4, "A"), pull(3, 4, "B"), pull(3, 0, "")],
            [pull(12, 4, "*"), pull(13, 6, "*")],
        ],
        header_type,
    )

    async def count_gathered(root: Path) -> list[int]:
        async with fed_broker(root, SETTINGS) as fed:
            pulls = fed.broker.server.requests[RequestCode.PULL_MESSAGE].bulk
            assert isinstance(pulls, PullFastPath)
            gather, counts = pulls.gather, [0]

            def counted(connection: RequestSource, request: ReceivedRequest) -> bool:
                is_gathered = gather(connection, request)
                counts[-1] += is_gathered
                return is_gathered

            pulls.gather = counted  # type: ignore[method-assign]
            for chunk in chunks:
                fed.feed(chunk)
                counts.append(0)
        return counts

    with tempfile.TemporaryDirectory() as name:
        assert run_within(count_gathered(Path(name, "store")), 60) == [0, 5, 0, 0]
