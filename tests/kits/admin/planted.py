"""Clusters with a fault in them, for the doctor: real servers, and brokers that tell anything."""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from flintmq.admin import AsyncAdmin
from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.format.wire.bodies.registration import encode_registration
from flintmq.format.wire.bodies.topics import topic_table_to_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.clients import NoFields
from flintmq.format.wire.headers.namesrv import RegisterBrokerRequest
from flintmq.model.data_version import DataVersion
from flintmq.model.topic_config import TopicConfig
from flintmq.namesrv import Namesrv, NamesrvConfig, run_namesrv
from flintmq.remoting import Answer, RemotingServer, Request, RequestTable, bind
from flintmq.remoting.processors import Processor

HOST = "127.0.0.1"
_TOPICS = [TopicConfig(name="told", read_queue_count=1, write_queue_count=1)]


@contextlib.asynccontextmanager
async def name_server(root: Path, **settings: Any) -> AsyncIterator[Namesrv]:
    """Run a name server without brokers."""
    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=root / "kvConfig.json",
        config_store_path=root / "namesrv.properties",
        **settings,
    )
    async with run_namesrv(config) as running:
        yield running


async def register(
    admin: AsyncAdmin, namesrv: str, address: str, *, name: str = "planted", broker_id: int = 0
) -> None:
    """Register a broker at an address with one name server; it stays while ``admin`` is open."""
    header = RegisterBrokerRequest(
        broker_name=name,
        broker_addr=address,
        cluster_name="DefaultCluster",
        ha_server_addr=address,
        broker_id=broker_id,
    )
    body = encode_registration(_TOPICS, DataVersion(1, 1))
    await admin.ask(namesrv, RequestCode.REGISTER_BROKER, header, body)


@contextlib.asynccontextmanager
async def telling_broker(
    info: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """Run a broker that tells this of itself and can do nothing else; yield its address."""
    now_ms = time.time_ns() // 1_000_000
    told = {
        "bootTimestamp": str(now_ms),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "commitLogDiskRatio": "0.1",
        "commitLogMaxOffset": "0",
        "dispatchBehindBytes": "0",
        "brokerVersionDesc": "V4_9_7",
        **(info or {}),
    }
    lines = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "ASYNC_MASTER", **(settings or {})}
    text = "".join(f"{key}={value}\n" for key, value in lines.items())

    def answering(body: bytes) -> Processor:
        def answer(request: Request[NoFields]) -> Answer:
            return Answer(parts=[body])

        return answer

    table = topic_table_to_json(_TOPICS, DataVersion(1, 1))
    requests = RequestTable(
        {
            RequestCode.GET_BROKER_RUNTIME_INFO: answering(dumps_body({"table": told})),
            RequestCode.GET_BROKER_CONFIG: answering(text.encode()),
            RequestCode.GET_ALL_TOPIC_CONFIG: answering(dumps_body(table)),
        }
    )
    async with RemotingServer.listen(requests, sockets=[bind(HOST, 0)]) as server:
        yield f"{HOST}:{server.ports[0]}"
