"""Whatever a broker answers, an operation ends with a result or with an error that has a name."""

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.admin import AsyncAdmin
from flintmq.admin.offset_admin import NEWEST
from flintmq.errors import FlintError
from flintmq.model.message_queue import MessageQueue
from tests.kits.admin.planted import babbling_broker, name_server, register

QUEUE: Final = MessageQueue("told", "planted", 0)

BODIES: Final = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b"7",
    b'"text"',
    b'{"broken":',
    b"\x00" * 200,
    b"\xff\xfe",
    b"[" * 5000,
    b'{"table":[],"offsetTable":[],"connectionSet":{},"data":[],"consumeStatsList":{}}',
    b'{"table":{"a":null},"offsetTable":{"x":1},"connectionSet":[1],"data":{"g":1}}',
    b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":"x"}:{}}}',
    b'{"offsetTable":{{"topic":"told","brokerName":"planted","queueId":0}:[]}}',
    b'{"offsetTable":{{"topic":"told","brokerName":"planted","queueId":0}:{"maxOffset":"x"}}}',
    b'{"consumeStatsList":[1],"groupList":7,"queueData":[1],"topicConfigTable":{"told":3}}',
    b'{"consumeStatsList":[{"g":[1]}],"topicConfigTable":[],"subscriptionGroupTable":{"g":[]}}',
    b'{"consumeStatsList":[{"g":7}],"data":{"g":[3]},"plainAccessConfigs":[1],"mqTable":{"a":1}}',
    b'{"subscriptionTable":{"t":1},"connectionSet":[{"version":"x"}],"statusTable":{"t":1}}',
    b'{"statsMinute":7,"statsHour":[],"statsDay":{"sum":"x"},"consumeTimeSpanSet":[{}]}',
)

OPERATIONS: Final[tuple[Callable[[AsyncAdmin], Awaitable[Any]], ...]] = (
    lambda admin: admin.broker_summaries(),
    lambda admin: admin.broker_status(broker="planted"),
    lambda admin: admin.broker_config(broker="planted"),
    lambda admin: admin.topic_uses(),
    lambda admin: admin.topic_status("told"),
    lambda admin: admin.groups_of_topic("told"),
    lambda admin: admin.put_topic("told", broker="planted", dry_run=True),
    lambda admin: admin.put_group("g", broker="planted", dry_run=True),
    lambda admin: admin.group_config("g"),
    lambda admin: admin.consumer_members("g"),
    lambda admin: admin.running_consumer("g", "c"),
    lambda admin: admin.producer_clients("g", "told"),
    lambda admin: admin.producers_of("planted"),
    lambda admin: admin.group_progress("g"),
    lambda admin: admin.group_summaries(),
    lambda admin: admin.broker_lags("planted"),
    lambda admin: admin.all_lags(),
    lambda admin: admin.reset_offsets("g", "told", NEWEST),
    lambda admin: admin.clone_offsets("g", "h", "told"),
    lambda admin: admin.access_versions(broker="planted"),
    lambda admin: admin.delete_account("a", broker="planted", dry_run=True),
    lambda admin: admin.message_by_id("0" * 32),
    lambda admin: admin.messages_by_key("told", "k"),
    lambda admin: admin.message_at(QUEUE, 0),
    lambda admin: admin.scan("told"),
    lambda admin: admin.queue_units("told", 0, index=0),
    lambda admin: admin.message_trace("id", topic="told"),
    lambda admin: admin.dead_letters(),
    lambda admin: admin.topic_statistics(),
    lambda admin: admin.export_metadata(broker="planted"),
    lambda admin: admin.export_metrics(cluster="DefaultCluster"),
    lambda admin: admin.diagnose(),
)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_nothing_but_named_errors(tmp_path: Path, body: bytes) -> None:
    async with (
        name_server(tmp_path) as server,
        babbling_broker(body) as address,
        AsyncAdmin(namesrv=server.address) as admin,
    ):
        await register(admin, server.address, address)
        for operation in OPERATIONS:
            with contextlib.suppress(FlintError):
                await operation(admin)
