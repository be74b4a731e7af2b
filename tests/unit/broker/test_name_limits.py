"""Names that are too long are refused wherever they come in, and nothing of them is kept."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.pulling.pull_fast_path import PullFastPath
from flintmq.broker.sending.send_fast_path import SendFastPath
from flintmq.broker.tables import offset_table, table_limits
from flintmq.broker.tables.table_limits import json_size
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.offsets import UpdateConsumerOffsetRequest
from flintmq.format.wire.headers.table import HEADERS
from flintmq.format.wire.name_limits import GROUP_LENGTH_MAX, NAME_LENGTHS
from flintmq.store.append_group.plain_properties import PlainProperties
from tests.kits.broker.broker_kit import Site, consumer, eventually, site
from tests.kits.broker.gate_kit import WatchedGate, plain_fields

HUGE: Final = "n" * (1 << 20)
NAMED: Final = [
    (code, wire_name)
    for code, pair in HEADERS.items()
    for wire_name, name in zip(pair.request.wire_fields(), pair.request._defaults, strict=True)
    if "".join([name.split("_")[0], *map(str.capitalize, name.split("_")[1:])]) in NAME_LENGTHS
]


def fast_paths(here: Site) -> tuple[SendFastPath, PullFastPath]:
    requests = here.broker.server.requests
    sends, pulls = (
        requests[RequestCode.SEND_MESSAGE_V2].bulk,
        requests[RequestCode.PULL_MESSAGE].bulk,
    )
    assert isinstance(sends, SendFastPath)
    assert isinstance(pulls, PullFastPath)
    return sends, pulls


@pytest.mark.parametrize("header_type", HeaderType)
async def test_a_huge_name_is_refused_in_every_request(
    header_type: HeaderType, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        sends, pulls = fast_paths(here)
        gate = WatchedGate(here.broker.server)
        assert len(NAMED) > 60
        asked = 0
        for code, wire_name in NAMED:
            if code not in gate.codes:
                continue
            fields = plain_fields(HEADERS[code].request) | {wire_name: HUGE}
            gate.ask({"code": code, "ext_fields": fields}, header_type=header_type)
            (answer,) = gate.answers()
            assert answer.code == ResponseCode.SYSTEM_ERROR, (code, wire_name)
            assert f"field {wire_name} is longer than" in (answer.remark or "")
            assert len(answer.remark or "") < 200
            asked += 1
        assert asked > 40
        context = here.broker.context
        assert not sends._known
        assert not pulls._known
        assert not any(len(topic.name) > 300 for topic in context.topics)
        assert not any(len(group.name) > 300 for group in context.groups)
        assert not list(context.offsets.pairs())


async def test_the_retry_topic_of_the_longest_group_can_be_pulled(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        group = "g" * GROUP_LENGTH_MAX
        topic = f"%RETRY%{group}"
        assert (await wire.heartbeat(consumer=consumer(group, topic))).code == 0
        answer = await wire.pull_raw(topic, consumer_group=group)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        answer = await wire.pull_raw(topic + "x", consumer_group=group)
        assert "longer than" in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.HEART_BEAT, {"clientID": HUGE}),
        (RequestCode.HEART_BEAT, {"clientID": "c", "producerDataSet": [{"groupName": HUGE}]}),
        (RequestCode.HEART_BEAT, {"clientID": "c", "consumerDataSet": [{"groupName": HUGE}]}),
        (
            RequestCode.HEART_BEAT,
            {
                "clientID": "c",
                "consumerDataSet": [
                    {"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subString": HUGE}]}
                ],
            },
        ),
        (RequestCode.LOCK_BATCH_MQ, {"consumerGroup": HUGE, "clientId": "c", "mqSet": []}),
        (
            RequestCode.LOCK_BATCH_MQ,
            {
                "consumerGroup": "g",
                "clientId": "c",
                "mqSet": [{"topic": "T", "brokerName": HUGE, "queueId": 0}],
            },
        ),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": HUGE}),
    ],
)
async def test_a_huge_name_in_a_body_is_refused(
    code: int, body: dict[str, Any], tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        answer = await wire.call(code, None, json.dumps(body).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert len(answer.remark or "") < 200
        context = here.broker.context
        assert context.consumers.sizes.total_size == context.producers.sizes.total_size == 0
        assert not list(context.consumers)


async def test_commits_under_names_that_vary_leave_offsets_that_can_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_table, "NAMES_SIZE_MAX", 100_000)
    async with site(tmp_path) as here:
        wire = await here.client()
        codes = set()
        for number in range(100):
            # A control character has six bytes in the file.
            header = UpdateConsumerOffsetRequest(
                consumer_group="\x01" * 250 + str(number), topic="T", queue_id=0, commit_offset=1
            )
            codes.add((await wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code)
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
        assert here.broker.context.offsets.keeper.save_now()
    assert (tmp_path / "config" / "consumerOffset.json").stat().st_size < 101_000


async def test_groups_and_subscriptions_of_a_connection_have_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_limits, "CLIENT_SIZE_MAX", 20_000)
    async with site(tmp_path) as here:
        greedy, modest = await here.client(), await here.client()
        sizes = here.broker.context.consumers.sizes
        codes = []
        for number in range(40):
            one = consumer(f"group{number}", "T", expression="tag")
            codes.append((await greedy.heartbeat(consumer=one)).code)
        assert codes[0] == ResponseCode.SUCCESS
        assert codes[-1] == ResponseCode.SYSTEM_ERROR
        assert sizes.total_size <= 20_000
        assert (await modest.heartbeat(consumer=consumer("modest", "T"))).code == 0
        await greedy.client.close()
        await eventually(lambda: here.broker.context.consumers.get("group0") is None)
        assert 0 < sizes.total_size < 2_000
        await modest.client.close()
        await eventually(lambda: sizes.total_size == 0)


async def test_kinds_with_long_texts_are_served_and_not_remembered(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sends, pulls = fast_paths(here)
        await wire.send("T")
        await eventually(lambda: here.broker.context.topics.keeper.is_saved)
        tags = "||".join(f"tag{number}" for number in range(3000))
        for subscription in (tags, "*"):
            answer = await wire.pull_raw("T", subscription=subscription)
            assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
        assert len(pulls._known) == 1
        await wire.send("T")
        assert len(sends._known) == 1


def test_orders_of_long_names_are_not_remembered() -> None:
    properties = PlainProperties()
    assert properties.judge(f"{HUGE}\x01value\x02".encode(), b"") is not None
    assert not properties._orders
    assert properties.judge(b"name\x01value\x02", b"") is not None
    assert len(properties._orders) == 1


@pytest.mark.parametrize("text", ["plain", 'quo"te', "line\nbreak", "ümlaut", "\x01", "消息"])
def test_the_size_of_a_name_is_that_in_the_file(text: str) -> None:
    assert json_size(text) == len(json.dumps(text, ensure_ascii=False).encode())
