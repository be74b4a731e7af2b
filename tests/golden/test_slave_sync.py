"""What a Java slave asked its master and what it was told, taken over by our slave."""

from pathlib import Path
from typing import Any

from flintmq.broker.config import BrokerConfig
from flintmq.broker.replication.table_sync import FollowedTables, TableSync
from flintmq.broker.tables.group_table import GroupTable
from flintmq.broker.tables.offset_table import OffsetTable
from flintmq.broker.tables.topic_table import TopicTable
from flintmq.format.wire.bodies.delays import DelayProgress
from flintmq.format.wire.bodies.dialect import dumps_body, loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.namesrv import RegisterBrokerRequest, RouteRequest
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.remoting import RemotingClient
from flintmq.remoting.fair_turns import FairTurns
from flintmq.remoting.refusal_counts import RefusalCounts
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.state_file import StateFile
from tests.kits.golden.recorded_frames import conversation


class RecordedMaster:
    """Answers the requests of a slave as it was recorded, and notes them."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        lines = conversation("json/slave-sync")
        self._answers = {
            line.line["requestCode"]: line.command
            for line in lines
            if line.line["type"] == "response"
        }

    async def call(
        self, address: str, code: int, header: object = None, *, timeout_ms: int
    ) -> Command:
        self.asked.append(code)
        return self._answers[code]


async def test_our_slave_takes_over_the_tables_that_were_recorded(tmp_path: Path) -> None:
    files, config = LocalFiles(), BrokerConfig()

    def state(name: str) -> StateFile:
        return StateFile(tmp_path / name, files=files)

    topics = TopicTable(
        state("topics.json"),
        config=lambda: config,
        now_ms=lambda: 1,
        delay_level_count=18,
        refused=RefusalCounts(),
    )
    groups = GroupTable(state("subscriptionGroup.json"), config=lambda: config, now_ms=lambda: 1)
    offsets = OffsetTable(state("consumerOffset.json"))
    delays: list[Any] = []
    tables = FollowedTables(topics, groups, offsets, delays.append)
    master = RecordedMaster()
    await TableSync(tables, FairTurns(), master).run("recorded")  # type: ignore[arg-type]
    assert master.asked == [
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    ]
    told = loads_body((await master.call("", 21, timeout_ms=0)).body)
    assert {topic.name for topic in topics} == set(told["topicConfigTable"])
    assert topics.version.counter == told["dataVersion"]["counter"]
    assert offsets.get("golden-group-online", "golden-orders", 0) == 3
    assert offsets.get("golden-group-tracedc", "golden-orders", 0) == 2
    assert delays == [DelayProgress({3: 1})]
    assert groups.version.counter == 3
    # A second look changes nothing.
    await TableSync(tables, FairTurns(), master).run("recorded")  # type: ignore[arg-type]
    assert topics.version.counter == told["dataVersion"]["counter"]


async def test_our_name_server_tells_of_a_slave_as_recorded(tmp_path: Path) -> None:
    """The registration of the recorded slave is answered as it was, and so are its observers."""
    lines = conversation("json/slave-sync")
    register = next(one for one in lines if one.line["code"] == RequestCode.REGISTER_BROKER)
    answered = next(
        one for one in lines if one.line.get("requestCode") == RequestCode.REGISTER_BROKER
    )
    topics = next(
        one for one in lines if one.line.get("requestCode") == RequestCode.GET_ALL_TOPIC_CONFIG
    )
    told = answered.ext_fields

    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=tmp_path / "kv.json",
        config_store_path=tmp_path / "namesrv.properties",
    )
    async with run_namesrv(config) as namesrv, RemotingClient() as client:

        async def ask(code: RequestCode, header: Any = None, body: bytes = b"") -> Command:
            answer = await client.call(namesrv.address, code, header, body, timeout_ms=5000)
            assert answer.code == ResponseCode.SUCCESS, answer
            return answer

        slave = RegisterBrokerRequest.decode(register.ext_fields)
        master = RegisterBrokerRequest(
            broker_name=slave.broker_name,
            broker_addr=told["masterAddr"],
            cluster_name=slave.cluster_name,
            ha_server_addr=told["haServerAddr"],
            broker_id=0,
        )
        table = loads_body(topics.command.body)
        body = dumps_body({"filterServerList": [], "topicConfigSerializeWrapper": table})
        await ask(RequestCode.REGISTER_BROKER, master, body)
        answer = await ask(RequestCode.REGISTER_BROKER, slave, register.command.body)
        assert answer.ext_fields == told
        for name, code in (
            ("json/admin-topicRoute-slave", RequestCode.GET_ROUTEINFO_BY_TOPIC),
            ("json/admin-clusterList-slave", RequestCode.GET_BROKER_CLUSTER_INFO),
        ):
            recorded = conversation(name)
            asked = next(one for one in recorded if one.line["code"] == code)
            wanted = next(one for one in recorded if one.line.get("requestCode") == code)
            header = RouteRequest.decode(asked.ext_fields) if asked.ext_fields else None
            found = loads_body((await ask(code, header)).body)
            assert texts(found) == texts(loads_body(wanted.command.body))


def texts(value: Any) -> Any:
    """Return JSON with all keys as texts: some bodies of Java have bare numbers."""
    if isinstance(value, dict):
        return {str(key): texts(one) for key, one in value.items()}
    return [texts(one) for one in value] if isinstance(value, list) else value
