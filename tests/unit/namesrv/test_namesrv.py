import asyncio
import contextlib
import functools
import logging
import threading
import zlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker import read_settings, run_broker
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.bodies.registration import encode_registration
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers import namesrv as headers
from flintmq.format.wire.headers.codec import Header
from flintmq.model import DataVersion, TopicConfig
from flintmq.model.routes import QueueData
from flintmq.namesrv import Namesrv, NamesrvConfig, kv_config, route_processors, run_namesrv
from flintmq.namesrv.routes import RouteTable
from flintmq.remoting import RemotingClient
from flintmq.settings.durable_file import replace_durably
from flintmq.settings.metrics_settings import MetricsExporter
from tests.kits.broker.broker_kit import SMALL, eventually, site
from tests.kits.broker.remoting_kit import PATIENT_MS, reserved_port
from tests.kits.broker.scrape_kit import scrape


class Asker:
    def __init__(self, namesrv: Namesrv, client: RemotingClient) -> None:
        self.namesrv = namesrv
        self.client = client

    async def call(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        return await self.client.call(
            self.namesrv.address, code, header, body, timeout_ms=PATIENT_MS
        )

    async def route(self, topic: str, **more: Any) -> Command:
        return await self.call(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.RouteRequest(topic=topic, **more)
        )


@contextlib.asynccontextmanager
async def namesrv(root: Path, **more: Any) -> AsyncIterator[Asker]:
    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=root / "kv.json",
        config_store_path=root / "changes.properties",
        **more,
    )
    async with run_namesrv(config) as running, RemotingClient() as client:
        yield Asker(running, client)


def registration(body: bytes, **more: Any) -> headers.RegisterBrokerRequest:
    values: dict[str, Any] = {
        "broker_name": "a",
        "broker_addr": "127.0.0.1:1",
        "cluster_name": "C",
        "ha_server_addr": "127.0.0.1:2",
        "broker_id": 0,
        "body_crc32": zlib.crc32(body) & 0x7FFFFFFF,
    }
    return headers.RegisterBrokerRequest(**(values | more))


@pytest.mark.parametrize("compressed", [True, False])
async def test_a_broker_registers_and_its_topics_have_routes(
    tmp_path: Path, compressed: bool
) -> None:
    async with namesrv(tmp_path) as asker:
        topic = TopicConfig(name="T", read_queue_count=3, write_queue_count=2)
        body = encode_registration([topic], DataVersion(1, 1), compressed=compressed)
        header = registration(body, compressed=compressed)
        assert (await asker.call(RequestCode.REGISTER_BROKER, header, body)).code == 0
        found = loads_body((await asker.route("T")).body)
        assert found["queueDatas"] == [
            {
                "brokerName": "a",
                "perm": 6,
                "readQueueNums": 3,
                "topicSysFlag": 0,
                "writeQueueNums": 2,
            }
        ]
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:1"}
        assert (await asker.route("none")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_registration_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    async with namesrv(tmp_path) as asker:
        body = encode_registration([], DataVersion(1, 1))
        header = registration(body, body_crc32=1)
        answer = await asker.call(RequestCode.REGISTER_BROKER, header, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        damaged = registration(b"", compressed=True, body_crc32=0)
        answer = await asker.call(RequestCode.REGISTER_BROKER, damaged, b"no zlib")
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_integer_names_are_bare_for_old_clients_and_quoted_for_who_needs_it(
    tmp_path: Path,
) -> None:
    async with namesrv(tmp_path) as asker:
        body = encode_registration([TopicConfig(name="T")], DataVersion(1, 1))
        await asker.call(RequestCode.REGISTER_BROKER, registration(body), body)
        connection = await asker.client.connect(asker.namesrv.address)
        bodies = {}
        for version, standard in ((1, None), (1, True), (409, None)):
            header = headers.RouteRequest(topic="T", accept_standard_json_only=standard)
            command = Command(
                code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
                version=version,
                opaque=1000 + version,
                ext_fields=header.encode(),
            )
            bodies[version, standard] = await connection.exchange(command, timeout_ms=PATIENT_MS)
        assert b'{0:"127.0.0.1:1"}' in bodies[1, None].body
        assert b'{"0":"127.0.0.1:1"}' in bodies[1, True].body
        assert b'{"0":"127.0.0.1:1"}' in bodies[409, None].body
        assert b" " not in bodies[1, None].body


async def test_a_broker_whose_connection_ends_is_gone_at_once(tmp_path: Path) -> None:
    async with namesrv(tmp_path) as asker:
        body = encode_registration([TopicConfig(name="T")], DataVersion(1, 1))
        async with RemotingClient() as broker:
            await broker.call(
                asker.namesrv.address,
                RequestCode.REGISTER_BROKER,
                registration(body),
                body,
                timeout_ms=PATIENT_MS,
            )
            assert (await asker.route("T")).code == ResponseCode.SUCCESS
        await eventually(lambda: asker.namesrv.routes.route("T") is None)


class SlowReading:
    """Reads large registrations only when a test says so, the first of them last."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.may_go_on = threading.Event()
        self.begun = 0
        self._read = route_processors._registration_of
        patch.setattr(route_processors, "_registration_of", self._slowly)
        patch.setattr(route_processors, "SMALL_BODY_SIZE", 100)

    def _slowly(self, request: Any) -> Any:
        if len(request.body) > route_processors.SMALL_BODY_SIZE:
            self.begun += 1
            if self.begun == 1:
                assert self.may_go_on.wait(60)
        return self._read(request)


async def test_nobody_waits_for_a_large_registration_and_each_counts_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = SlowReading(monkeypatch)
    async with namesrv(tmp_path) as asker:

        def register(version: int, queue_count: int, *more: str) -> asyncio.Task[Command]:
            topics = [
                TopicConfig(name=name, read_queue_count=queue_count, write_queue_count=1)
                for name in ("T", *more)
            ]
            body = encode_registration(topics, DataVersion(version, version))
            header = registration(body)
            return asyncio.create_task(asker.call(RequestCode.REGISTER_BROKER, header, body))

        many = [f"topic-{number}" for number in range(50)]
        first = register(1, 1, *many)
        await eventually(lambda: reading.begun >= 1)
        second, third = register(2, 2, *many), register(3, 3)
        await eventually(lambda: reading.begun >= 2)
        assert (await asker.route("T")).code == ResponseCode.TOPIC_NOT_EXIST
        reading.may_go_on.set()
        assert [one.code for one in await asyncio.gather(first, second, third)] == [0, 0, 0]
        found = loads_body((await asker.route("T")).body)
        assert found["queueDatas"][0]["readQueueNums"] == 3


async def test_very_many_topics_are_taken_in_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_in: list[int] = []
    put = RouteTable.put_queues

    def noted(table: RouteTable, name: str, queues: Mapping[str, QueueData]) -> None:
        taken_in.append(len(queues))
        put(table, name, queues)

    monkeypatch.setattr(RouteTable, "put_queues", noted)
    monkeypatch.setattr(route_processors, "TOPICS_AT_ONCE_MAX", 100)
    async with namesrv(tmp_path) as asker:
        topics = [TopicConfig(name=f"topic-{number}") for number in range(450)]
        for version, expected in ((1, 450), (1, 450), (2, 900)):
            body = encode_registration(topics, DataVersion(version, version))
            answer = await asker.call(RequestCode.REGISTER_BROKER, registration(body), body)
            assert answer.code == ResponseCode.SUCCESS
            assert (max(taken_in), sum(taken_in)) == (100, expected)
        for number in (0, 99, 100, 449):
            assert (await asker.route(f"topic-{number}")).code == ResponseCode.SUCCESS


async def test_a_broker_learns_whether_it_has_to_register(tmp_path: Path) -> None:
    async with namesrv(tmp_path) as asker:
        header = headers.QueryDataVersionRequest(
            broker_name="a", broker_addr="127.0.0.1:1", cluster_name="C", broker_id=0
        )

        async def changed(counter: int) -> bool:
            body = b'{"counter":%d,"timestamp":1}' % counter
            answer = await asker.call(RequestCode.QUERY_DATA_VERSION, header, body)
            return headers.QueryDataVersionResponse.decode(answer.ext_fields).changed

        assert await changed(1)
        body = encode_registration([], DataVersion(1, 1))
        await asker.call(RequestCode.REGISTER_BROKER, registration(body), body)
        assert not await changed(1)
        assert await changed(2)


async def test_pairs_are_kept_over_a_restart(tmp_path: Path) -> None:
    pair = headers.KvConfigRequest(namespace="N", key="k")
    async with namesrv(tmp_path) as asker:
        missing = await asker.call(RequestCode.GET_KV_CONFIG, pair)
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
        put = headers.PutKvConfigRequest(namespace="N", key="k", value="v")
        await asker.call(RequestCode.PUT_KV_CONFIG, put)
    async with namesrv(tmp_path) as asker:
        found = await asker.call(RequestCode.GET_KV_CONFIG, pair)
        assert found.ext_fields == {"value": "v"}
        header = headers.KvNamespaceRequest(namespace="N")
        every = await asker.call(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        assert loads_body(every.body) == {"table": {"k": "v"}}
        await asker.call(RequestCode.DELETE_KV_CONFIG, pair)
        gone = await asker.call(RequestCode.GET_KV_CONFIG, pair)
        assert gone.code == ResponseCode.QUERY_NOT_FOUND


async def test_pairs_have_a_size_and_are_written_while_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_config, "TABLE_SIZE_MAX", 40)
    may_write, is_writing = threading.Event(), threading.Event()

    def replace_late(*arguments: Any) -> None:
        is_writing.set()
        assert may_write.wait(20)
        replace_durably(*arguments)

    monkeypatch.setattr(kv_config, "replace_durably", replace_late)
    async with namesrv(tmp_path) as asker:
        puts = [
            headers.PutKvConfigRequest(namespace="N", key=f"k{number}", value="v" * 10)
            for number in range(4)
        ]
        calls = [asyncio.create_task(asker.call(RequestCode.PUT_KV_CONFIG, put)) for put in puts]
        await asyncio.to_thread(is_writing.wait, 20)
        pair = headers.KvConfigRequest(namespace="N", key="k0")
        assert (await asker.call(RequestCode.GET_KV_CONFIG, pair)).code != 0
        may_write.set()
        codes = [(await call).code for call in calls]
        assert codes == [0, 0, 0, ResponseCode.SYSTEM_ERROR]
        assert (await asker.call(RequestCode.GET_KV_CONFIG, pair)).code == 0


async def test_the_order_of_a_topic_is_told_if_that_is_switched_on(tmp_path: Path) -> None:
    async with namesrv(tmp_path) as asker:
        put = headers.PutKvConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4;b:4")
        await asker.call(RequestCode.PUT_KV_CONFIG, put)
        body = encode_registration([TopicConfig(name="T")], DataVersion(1, 1))
        answer = await asker.call(RequestCode.REGISTER_BROKER, registration(body), body)
        assert loads_body(answer.body) == {"table": {"T": "a:4;b:4"}}
        assert "orderTopicConf" not in loads_body((await asker.route("T")).body)
        change = b"orderMessageEnable=true"
        await asker.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, change)
        assert loads_body((await asker.route("T")).body)["orderTopicConf"] == "a:4;b:4"


async def test_settings_are_changed_only_where_they_may_be_and_stay_changed(tmp_path: Path) -> None:
    async with namesrv(tmp_path) as asker:
        for body in (
            b"kvConfigPath=/etc/passwd",
            b"orderMessageEnable=maybe",
            b"productEnvName=a\\nb",
            b"\xff\xfe",
        ):
            answer = await asker.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
            assert answer.code == ResponseCode.NO_PERMISSION, body
        body = b"productEnvName=test"
        assert (await asker.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)).code == 0
    async with namesrv(tmp_path) as asker:
        shown = await asker.call(RequestCode.GET_NAMESRV_CONFIG)
        assert b"productEnvName=test\n" in shown.body


async def test_unknown_requests_are_answered(tmp_path: Path) -> None:
    async with namesrv(tmp_path) as asker:
        answer = await asker.call(12345)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_broker_registers_with_all_and_a_dead_name_server_delays_nothing(
    tmp_path: Path,
) -> None:
    async with namesrv(tmp_path / "1") as first, namesrv(tmp_path / "2") as second:
        servers = f"{first.namesrv.address};127.0.0.1:9;{second.namesrv.address}"
        async with site(tmp_path / "store", namesrvAddr=servers) as here:
            wire = await here.client()
            await wire.send("fresh")
            for asker in (first, second):
                await eventually(functools.partial(_has, asker, "fresh"))
                info = await asker.call(RequestCode.GET_BROKER_CLUSTER_INFO)
                assert b'"clusterAddrTable":{"TestCluster":["broker-a"]}' in info.body
        for asker in (first, second):
            assert asker.namesrv.routes.topics() == []


def _has(asker: Asker, topic: str) -> bool:
    return asker.namesrv.routes.route(topic) is not None


async def test_a_broker_registers_when_its_name_server_comes_up_later(tmp_path: Path) -> None:
    with reserved_port() as port:
        config, store = read_settings(
            SMALL
            | {
                "storePathRootDir": str(tmp_path / "store"),
                "namesrvAddr": f"127.0.0.1:{port}",
            }
        )
        async with run_broker(config, store) as broker:
            later = NamesrvConfig(
                listen_port=port,
                kv_config_path=tmp_path / "kv.json",
                config_store_path=tmp_path / "changes.properties",
            )
            async with run_namesrv(later) as running:
                broker.context.topics.ensure("T", 1)
                await eventually(lambda: running.routes.route("T") is not None)
                await asyncio.sleep(0)


async def test_levels_of_the_log_change_while_a_name_server_runs_and_end_with_it(
    tmp_path: Path,
) -> None:
    logger = logging.getLogger("flintmq.namesrv")
    before = logger.level
    async with namesrv(tmp_path) as asker:
        body = b"logLevels=namesrv=debug\n"
        answer = await asker.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
        assert answer.code == ResponseCode.SUCCESS, answer
        assert logger.level == logging.DEBUG
    assert logger.level == before
    async with namesrv(tmp_path):
        assert logger.level == logging.DEBUG, "the change was kept"
    assert logger.level == before


async def test_a_name_server_shows_who_is_registered(tmp_path: Path) -> None:
    shown = {"metrics_exporter": MetricsExporter.PROM, "metrics_port": 0}
    async with namesrv(tmp_path / "namesrv", **shown) as asker:
        address = asker.namesrv.metrics_address
        assert address is not None
        async with site(tmp_path / "store", namesrvAddr=asker.namesrv.address):
            scraped = await scrape(address)
        gone = await scrape(address)
    assert scraped.value("flintmq_namesrv_brokers", cluster="TestCluster", role="master") == 1
    assert scraped.value("flintmq_namesrv_topics") > 0
    assert gone.series("flintmq_namesrv_brokers") == {}
