"""Our broker has more topics than it registers together, and Java's name server knows them all."""

import asyncio
import time
from pathlib import Path

import pytest

from flintmq.broker import broker_registrar
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.remoting import RemotingClient
from tests.kits.processes.broker_process import OurBroker
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.processes.serving import SMALL_FILES

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("many-topics")]

TIMEOUT_MS = 10_000


async def find_all(namesrv: str, names: list[str]) -> None:
    """Wait until a name server knows where all topics are."""
    client = RemotingClient()
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    for name in names:
        while True:
            code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic=name)
            answer = await client.call(namesrv, code, header, timeout_ms=TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                break
            assert time.monotonic() < deadline, name
    await client.close()


async def create_all(broker: str, names: list[str]) -> None:
    """Have a broker make topics, one after the other."""
    client = RemotingClient()
    for name in names:
        header = CreateTopicRequest(topic=name, read_queue_nums=1, write_queue_nums=1, perm=6)
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        answer = await client.call(broker, code, header, timeout_ms=TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS, answer
    await client.close()


def test_topics_that_are_registered_alone_are_beside_the_others(
    tmp_path: Path, toolchain: JavaToolchain
) -> None:
    names = [f"topic-{number}" for number in range(broker_registrar.WHOLE_TABLE_MAX + 50)]
    java = JavaCluster(tmp_path / "java", SMALL_FILES, work_directory=tmp_path, toolchain=toolchain)
    with java as cluster:
        namesrv = f"{HOST}:{cluster.namesrv_port}"
        with OurBroker(tmp_path / "ours", namesrv, {"brokerName": "ours"}) as broker:
            asyncio.run(create_all(f"{HOST}:{broker.port}", names))
            asyncio.run(find_all(namesrv, names))
