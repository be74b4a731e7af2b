"""What Java clients were recorded to ask is answered by our servers as it was by Java's.

Compared is every field of every answer, and of every request of the broker to a client, that is
no id, no time and no port (`replay_meaning` has the list).  What else may differ stands here,
each with its reason.
"""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import decode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.namesrv import NamesrvConfig, run_namesrv
from tests.kits.golden.recorded_frames import Recorded, conversation
from tests.kits.golden.replay_meaning import differences, meaning
from tests.kits.golden.replay_rules import Allowed, unexpected
from tests.kits.golden.replaying import MAIN_RUN, UNRECORDED_TOPICS, replay

COMPARED_MIN: Final = 900
DEADLINE_S: Final = 120


ALLOWED: Final = (
    Allowed(
        "producer-errors",
        RequestCode.SEND_MESSAGE_V2,
        r"fields\.queueOffset",
        "how long the queue of half messages is depends on how often was asked about one",
    ),
    Allowed(
        "producer-errors",
        RequestCode.SEND_MESSAGE_V2,
        r"fields\.(MSG_REGION|TRACE_ON)",
        "a request without its fields is refused before anything looks at it",
    ),
    Allowed(
        "admin-.*",
        RequestCode.GET_BROKER_RUNTIME_INFO,
        r"body\.(brokerActive|timer\w+|getTransferredTps|commitLogEndOffset|"
        r"heldPullCount|longTurn\w+|"
        r"waitingMessageCount|brokerRole|haListenPort|haSlave\w+|refused\w*|commitLogDiskRatio_.*)",
        "what the tools of 5.x look for, and our own; a path",
    ),
    Allowed(
        "admin-.*",
        RequestCode.GET_BROKER_RUNTIME_INFO,
        r"body\.scheduleMessageOffset_4",
        "4.9.7 lets a dead letter wait once more, 4.9.8 and we do not",
    ),
    Allowed(
        "admin-getNamesrvConfig",
        RequestCode.GET_NAMESRV_CONFIG,
        r"body\.(bindAddress|brokerTimeoutMillis|scanNotActiveBrokerInterval|\w+Path|rocketmqHome"
        r"|listenPort)",
        "our own settings, paths and a port",
    ),
    Allowed(
        "admin-(getConsumerConfig|exportMetadata)",
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        r"body\.(dataVersion\.counter|subscriptionGroupTable\.golden-group-sqlbad)",
        "Java makes a group of whoever leaves it, also if its expression was refused at the start",
    ),
    Allowed(
        "admin-brokerConsumeStats",
        RequestCode.GET_BROKER_CONSUME_STATS,
        r"body\.consumeStatsList\.golden-group-sqlbad",
        "the same group",
    ),
    Allowed(
        "admin-queryCq-group",
        RequestCode.QUERY_CONSUME_QUEUE,
        r"body\.queueData\.\d\.eval",
        "Java says false whatever the tag is",
    ),
    Allowed(
        "admin-addWritePerm",
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        r"body\.queueDatas\.0\.perm",
        "asked while the permission was being given back",
    ),
    Allowed(
        "admin-statsAll",
        RequestCode.VIEW_BROKER_STATS_DATA,
        "code|remark|body",
        "Java counts a delayed message, a half message and a reply for the topic in which it waits,"
        " we for the topic to which it was sent",
    ),
    Allowed(
        "admin-exportMetadata",
        RequestCode.GET_ALL_TOPIC_CONFIG,
        r"body\.(dataVersion\.counter|topicConfigTable\.golden-ordered\.order)",
        "a broker learns of ordered topics when it registers the next time, every 30 s",
    ),
    *(
        Allowed(
            ".*",
            code,
            "notation",
            "that broker was told to write its own requests in the binary form; ours are JSON",
        )
        for code in (
            RequestCode.CHECK_TRANSACTION_STATE,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        )
    ),
)


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("notation", ["json", "rocketmq"])
async def test_the_recorded_run_is_answered_as_it_was(notation: str, tmp_path: Path) -> None:
    async with replay(tmp_path, notation) as playing:
        await playing.prepare(UNRECORDED_TOPICS)
        found = [one for name in MAIN_RUN for one in await playing.play(name)]
        compared = playing.compared
    assert unexpected(found, ALLOWED) == []
    assert compared >= COMPARED_MIN
    if notation == "rocketmq":
        unused = [rule for rule in ALLOWED if not any(rule.covers(one) for one in found)]
        # Only in the other notation the tool was faster than the name server.
        assert [rule.conversation for rule in unused] == ["admin-addWritePerm"]


def test_the_run_is_held_in_the_order_of_the_recording() -> None:
    assert len(MAIN_RUN) == 76
    assert MAIN_RUN[0] == "admin-updateTopic"
    assert MAIN_RUN.index("producer") < MAIN_RUN.index("push-consumer")
    assert MAIN_RUN[-1] == "offline"


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("notation", ["json", "rocketmq"])
async def test_a_name_server_registers_and_unregisters_a_java_broker(
    notation: str, tmp_path: Path
) -> None:
    config = NamesrvConfig(
        listen_port=0, bind_address="127.0.0.1", kv_config_path=tmp_path / "kvConfig.json"
    )
    async with run_namesrv(config) as namesrv:
        reader, writer = await asyncio.open_connection("127.0.0.1", namesrv.port)
        await exchange(reader, writer, conversation(f"{notation}/register-broker"))
        assert namesrv.routes.route("BenchmarkTest") is not None
        frames = conversation(f"{notation}/unregister-broker")
        leaving = tuple(one for one in frames if RequestCode.UNREGISTER_BROKER in codes(one))
        await exchange(reader, writer, leaving)
        assert namesrv.routes.route("BenchmarkTest") is None
        writer.close()
        await writer.wait_closed()


def codes(recorded: Recorded) -> tuple[int, int | None]:
    return recorded.line["code"], recorded.line.get("requestCode")


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, recorded: tuple[Recorded, ...]
) -> None:
    answers = {one.command.opaque: one.command for one in recorded if one.command.is_response}
    for request in recorded:
        if request.command.is_response:
            continue
        writer.write(request.raw)
        (ours,) = map(decode_command, FrameDecoder().frames(await reader.read(1 << 16)))
        code, theirs = request.command.code, answers[request.command.opaque]
        assert ours.opaque == theirs.opaque
        assert list(differences(meaning(ours, code), meaning(theirs, code))) == []
