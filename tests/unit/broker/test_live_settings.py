"""Settings that are refused, all at once, and those that may be changed while a broker runs."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker import BrokerConfig, read_settings, run_broker
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.frame import HeaderType
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.remoting import Answer, RemotingClient, Request, RequestTable
from flintmq.settings import ConfigError, read_properties
from flintmq.store.config import FlushMode
from tests.kits.broker.broker_kit import SMALL, Wire, consumer, eventually, site
from tests.kits.broker.remoting_kit import HOST, serving
from tests.kits.broker.stuck_disk import slow_disk

CHANGES: Final = {
    "accessMessageInMemoryMaxRatio": "30",
    "cleanFileForciblyEnable": "false",
    "deleteWhen": "02;14",
    "diskMaxUsedSpaceRatio": "60",
    "maxMessageSize": "1000",
    "maxMsgsNumBatch": "7",
    "maxTransferBytesOnMessageInDisk": "4096",
    "maxTransferBytesOnMessageInMemory": "8192",
    "maxTransferCountOnMessageInDisk": "3",
    "maxTransferCountOnMessageInMemory": "4",
    "transactionCheckInterval": "1234",
}


def body(changes: dict[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in changes.items()).encode()


async def test_everyday_settings_change_while_a_broker_runs(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for number in range(8):
            await wire.send("orders", b"%d" % number * 400)
        store = here.broker.context.store
        found = store.get_messages("orders", 0, 0, 32)
        assert found is not None
        with found:
            assert len(found.messages) == 8
        answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, body(CHANGES))
        assert answer.code == 0, answer
        shown = read_properties((await wire.call(RequestCode.GET_BROKER_CONFIG)).body)
        assert {key: shown[key] for key in CHANGES} == CHANGES
        assert shown["storePathCommitLog"] == str(tmp_path / "commitlog")
        found = store.get_messages("orders", 0, 0, 32)
        assert found is not None
        with found:
            assert len(found.messages) == 4
        with pytest.raises(AssertionError):
            await wire.send("orders", bytes(1001))
        await wire.send("orders", bytes(1000))


async def change(wire: Wire, **changes: str) -> None:
    answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, body(changes))
    assert answer.code == ResponseCode.SUCCESS, answer


async def test_messages_wait_for_the_disk_as_soon_as_flushing_is_synchronous(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire, store = await here.client(), here.broker.context.store
        # So that the sends below are of a known kind.
        for _ in range(3):
            await wire.send("orders", b"before")
        await change(wire, flushDiskType="SYNC_FLUSH")
        assert len(await wire.pull("orders")) == 3, "what could be read can still be read"
        with slow_disk(store) as begun:
            waiting = asyncio.create_task(wire.send_raw("orders", b"waits"))
            await asyncio.to_thread(begun.wait, 10)
            assert not waiting.done()
            assert len(await wire.pull("orders")) == 3
            # Whoever was promised the disk gets it, whatever is changed meanwhile.
            await change(wire, flushDiskType="ASYNC_FLUSH")
            assert not waiting.done()
            await wire.send("orders", b"does not wait")
            assert len(await wire.pull("orders")) == 5
        assert (await waiting).code == ResponseCode.SUCCESS


async def test_a_way_of_flushing_that_was_changed_counts_after_a_restart(tmp_path: Path) -> None:
    config, store = read_settings(SMALL | {"storePathRootDir": str(tmp_path / "store")})
    overlay = tmp_path / "changed.properties"
    async with run_broker(config, store, overlay=overlay) as broker:
        broker.context.live_config.update(b"flushDiskType=SYNC_FLUSH")
        assert broker.context.store.log.durable_reads
    async with run_broker(config, store, overlay=overlay) as broker:
        assert broker.context.store.log.durable_reads
        assert broker.context.config.flush_mode is FlushMode.SYNC


@pytest.mark.parametrize("setting", ["transientStorePoolEnable=true", "brokerRole=SLAVE"])
async def test_where_flushing_is_settled_at_the_start_it_cannot_be_changed(
    tmp_path: Path, setting: str
) -> None:
    name, _, value = setting.partition("=")
    more = {"brokerId": "1"} if name == "brokerRole" else {"transientStorePoolSize": "1"}
    async with site(tmp_path, **{name: value}, **more) as here:
        with pytest.raises(ConfigError, match="at a start only"):
            here.broker.context.live_config.change(b"flushDiskType=SYNC_FLUSH")
        assert not here.broker.context.store.log.durable_reads


async def test_a_change_that_the_store_refuses_changes_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        before = here.broker.context.config
        for wrong in ("deleteWhen=25", "maxMessageSize=1", "storePathRootDir=/tmp", "listenPort=1"):
            changes = f"regionId=elsewhere\n{wrong}".encode()
            answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, changes)
            assert answer.code == ResponseCode.NO_PERMISSION
        assert here.broker.context.config == before


async def test_a_broker_goes_over_to_other_name_servers(tmp_path: Path) -> None:
    def config(name: str) -> NamesrvConfig:
        return NamesrvConfig(
            listen_port=0,
            kv_config_path=tmp_path / name / "kv.json",
            config_store_path=tmp_path / name / "changes",
        )

    overlay = tmp_path / "broker.changes"
    async with run_namesrv(config("a")) as first, run_namesrv(config("b")) as second:
        settings = SMALL | {
            "storePathRootDir": str(tmp_path / "store"),
            "namesrvAddr": first.address,
        }

        def knows(broker_at: str) -> tuple[bool, bool]:
            tables = [str(one.routes.cluster_info()) for one in (first, second)]
            return broker_at in tables[0], broker_at in tables[1]

        async with run_broker(*read_settings(settings), overlay=overlay) as broker:
            assert knows(broker.address) == (True, False)
            broker.context.live_config.update(f"namesrvAddr={second.address}".encode())
            broker.context.topics.announce()
            await eventually(lambda: knows(broker.address) == (False, True))
        assert knows(broker.address) == (False, False)
        async with run_broker(*read_settings(settings), overlay=overlay) as broker:
            assert knows(broker.address) == (False, True)


async def test_sends_make_only_so_many_topics_in_a_minute(tmp_path: Path) -> None:
    async with site(tmp_path, maxAutoCreatedTopicsPerMinute=2) as here:
        wire = await here.client()
        for topic in ("first", "second"):
            await wire.send(topic)
        for topic in ("third", "fourth"):
            with pytest.raises(AssertionError, match="2 topics were made in this minute"):
                await wire.send(topic)
        await wire.send("first")
        answer = await wire.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert b'"refusedReasons":"new topics a minute:2"' in bytes(answer.body)
        here.clock.advance(60_000)
        await wire.send("third")


def test_all_that_is_refused_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        read_settings(
            {
                "brokerPermission": "99",
                "maxMessageSize": "many",
                "fileReservedTime": "-1",
                "messageStorePlugIn": "com.example.Plug",
                "fetchNamesrvAddrByAddressServer": "true",
                "enableDLegerCommitLog": "true",
                "namesrvAddr": "nowhere",
            }
        )
    said = str(raised.value)
    assert said.startswith("7 settings are refused: ")
    for words in (
        "brokerPermission=99: allowed is a whole number from 0 to 15",
        "maxMessageSize=many",
        "fileReservedTime=-1",
        "messageStorePlugIn=com.example.Plug: allowed is nothing",
        "fetchNamesrvAddrByAddressServer=true: allowed is false: name servers are told by",
        "enableDLegerCommitLog=true",
        "namesrvAddr=nowhere: allowed is host:port",
    ):
        assert words in said


async def test_an_address_that_is_registered_is_listened_on(tmp_path: Path) -> None:
    """A file of Java's names the address that clients are told, and Java listens on all."""
    assert BrokerConfig().bind_address == BrokerConfig().ip1 == "127.0.0.1"
    named = BrokerConfig(ip1="127.0.0.3")
    assert (named.bind_address, named.ip1) == ("127.0.0.3", "127.0.0.3")
    apart = BrokerConfig(ip1="203.0.113.9", bind_address="127.0.0.1")
    assert (apart.bind_address, apart.ip1) == ("127.0.0.1", "203.0.113.9")
    async with site(tmp_path, brokerIP1="127.0.0.3", bindAddress="") as here:
        assert here.broker.address == f"127.0.0.3:{here.broker.port}"
        assert (await (await here.client()).call(RequestCode.GET_BROKER_CONFIG)).code == 0
    settings = SMALL | {"brokerIP1": "203.0.113.9", "storePathRootDir": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match=r"brokerIP1=203\.0\.113\.9.*bindAddress"):
        async with run_broker(*read_settings(settings)):
            pass


async def test_a_key_on_the_black_list_is_not_changed(tmp_path: Path) -> None:
    async with site(tmp_path, configBlackList="configBlackList;maxMessageSize; regionId") as here:
        wire = await here.client()
        before = here.broker.context.config
        for changes in ("maxMessageSize=2000", "deleteWhen=02\nregionId=elsewhere"):
            answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, changes.encode())
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "black list" in (answer.remark or "")
        assert here.broker.context.config == before
        await change(wire, deleteWhen="02")


@pytest.mark.parametrize("kind", ["JSON", "ROCKETMQ"])
async def test_requests_of_a_broker_are_written_in_its_notation(tmp_path: Path, kind: str) -> None:
    seen: list[tuple[int, HeaderType]] = []

    def note(request: Request[Any]) -> Answer:
        seen.append((request.command.code, request.command.serialize_type))
        return Answer()

    registers, notices = RequestCode.REGISTER_BROKER, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    async with (
        serving({registers: note}) as namesrv,
        site(
            tmp_path,
            namesrvAddr=f"{HOST}:{namesrv.ports[0]}",
            **{"rocketmq.serialize.type": kind},
        ) as here,
        RemotingClient(RequestTable({notices: note})) as member,
    ):
        wire = Wire(here.broker, member, [])
        await wire.heartbeat("member", consumer=consumer("g", "T"))
        await eventually(lambda: {code for code, _ in seen} == {registers, notices})
    assert {header_type for _, header_type in seen} == {HeaderType[kind]}
