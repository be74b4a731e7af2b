"""A master and its slave over real sockets: what reaches whom, and what is promised when."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker import Broker
from flintmq.broker.failover.name_server_look import FailoverError
from flintmq.broker.failover.rejoin import NewMaster, Rejoining
from flintmq.broker.replication import replica as replica_module
from flintmq.broker.replication.errors import OtherLogError
from flintmq.broker.replication.ha_server import SLAVE_COUNT_OF_HOST_MAX
from flintmq.broker.replication.master_link import MasterRange
from flintmq.client.messaging.messages import SendStatus
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.ha_stream import encode_report
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.format.wire.headers.transaction import EndTransactionRequest
from flintmq.remoting import RemotingClient
from flintmq.testing import AsyncEmbeddedCluster
from tests.kits.broker.broker_kit import pull_header, send_header
from tests.kits.broker.remoting_kit import eventually

QUICK: Any = {
    "haSendHeartbeatInterval": 50,
    "haHousekeepingInterval": 10_000,
    # Below the time that a send has, and long enough for a slave on a busy machine.
    "slaveTimeout": 2500,
}


def log_of(broker: Broker) -> bytes:
    log = broker.context.store.log
    return b"".join(bytes(file.view[: file.wrote]) for file in log.files.snapshot())


async def runtime_info(broker: Broker) -> dict[str, Any]:
    async with RemotingClient() as client:
        answer = await client.call(
            broker.address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=5000
        )
    table: dict[str, Any] = loads_body(answer.body)["table"]
    return table


async def test_a_slave_has_the_log_and_the_queues_of_its_master() -> None:
    async with AsyncEmbeddedCluster(replicas=2, **QUICK) as cluster:
        for number in range(200):
            await cluster.send("orders", b"body %d" % number, tag="a", keys=[f"key-{number}"])
        await cluster.wait_for_slaves()
        for slave in cluster.slaves:
            assert log_of(slave) == log_of(cluster.broker)
            store = slave.context.store
            ends = [store.max_offset_in_queue("orders", queue_id) for queue_id in range(4)]
            assert sum(ends) == 200
            found = store.query("orders", "key-77", 32, 0, 1 << 60)
            assert len(found.slices) == 1
            found.release()


async def test_a_slave_goes_on_where_it_was_cut_off() -> None:
    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster:
        for number in range(60):
            await cluster.send("orders", bytes(2000) + b"%d" % number)
            if number % 20 == 10:
                cluster.stream.cut_answers_after(5000)
            if number % 20 == 15:
                cluster.stream.drop_connections()
        await cluster.wait_for_slaves()
        assert log_of(cluster.slaves[0]) == log_of(cluster.broker)
        assert cluster.stream.accepted_count >= 2


async def test_a_silent_stream_is_given_up_by_both() -> None:
    settings: Any = {**QUICK, "haHousekeepingInterval": 300}
    async with AsyncEmbeddedCluster(replicas=1, **settings) as cluster:
        await cluster.send("orders", b"one")
        await cluster.wait_for_slaves()
        cluster.stream.forget_connections()
        await eventually(lambda: cluster.stream.accepted_count >= 2)
        await cluster.send("orders", b"two")
        await cluster.wait_for_slaves()


async def test_a_synchronous_master_answers_when_its_slave_has_the_message() -> None:
    async with AsyncEmbeddedCluster(replicas=1, brokerRole="SYNC_MASTER", **QUICK) as cluster:
        await eventually(lambda: bool(cluster.broker.context.slaves.links))
        sent = await cluster.send("orders", b"both have it")
        assert sent.status is SendStatus.SEND_OK
        assert b"both have it" in log_of(cluster.slaves[0])
        with cluster.stream.stall():
            late = await cluster.send("orders", b"only the master has it")
        assert late.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        await cluster.wait_for_slaves()


async def test_a_synchronous_master_without_a_slave_says_so() -> None:
    async with AsyncEmbeddedCluster(brokerRole="SYNC_MASTER", **QUICK) as cluster:
        sent = await cluster.send("orders", b"alone")
        assert sent.status is SendStatus.SLAVE_NOT_AVAILABLE
        # Who does not wait for the disk does not wait for a slave either.
        sent = await cluster.send("orders", b"alone", wait=False)
        assert sent.status is SendStatus.SEND_OK


async def test_a_slave_too_far_behind_counts_as_none() -> None:
    settings: Any = {**QUICK, "haSlaveFallbehindMax": 1000, "brokerRole": "SYNC_MASTER"}
    async with AsyncEmbeddedCluster(replicas=1, **settings) as cluster:
        await eventually(lambda: bool(cluster.broker.context.slaves.links))
        sent = await cluster.send("orders", bytes(2000))
        assert sent.status is SendStatus.SLAVE_NOT_AVAILABLE
        await cluster.wait_for_slaves()
        context = cluster.broker.context
        # The slave has it; now its master has to be told.
        await eventually(lambda: context.slaves.can_promise(context.store.log.end_offset))
        sent = await cluster.send("orders", b"small")
        assert sent.status is SendStatus.SEND_OK


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_both_promises_together(flush: str) -> None:
    settings: Any = {**QUICK, "flushDiskType": flush, "brokerRole": "SYNC_MASTER"}
    async with AsyncEmbeddedCluster(replicas=1, **settings) as cluster:
        await eventually(lambda: bool(cluster.broker.context.slaves.links))
        sent = await asyncio.gather(*(cluster.send("orders", b"%d" % n) for n in range(50)))
        assert {one.status for one in sent} == {SendStatus.SEND_OK}
        slave = cluster.slaves[0].context.store
        end = cluster.broker.context.store.log.end_offset
        # With synchronous flush a slave promises only what its disk has.
        promised = slave.flusher.flushed_offset if flush == "SYNC_FLUSH" else slave.log.end_offset
        assert promised == end


async def test_a_slave_takes_no_messages_and_no_changes() -> None:
    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster, RemotingClient() as client:
        slave = cluster.slaves[0]

        async def refused(code: RequestCode, header: Any, body: bytes = b"") -> int:
            answer = await client.call(slave.address, code, header, body, timeout_ms=5000)
            return answer.code

        send = send_header("orders")
        assert await refused(RequestCode.SEND_MESSAGE_V2, send, b"x") == (
            ResponseCode.SERVICE_NOT_AVAILABLE
        )
        end = EndTransactionRequest(
            producer_group="g",
            tran_state_table_offset=0,
            commit_log_offset=0,
            commit_or_rollback=8,
            msg_id="",
        )
        assert await refused(RequestCode.END_TRANSACTION, end) == ResponseCode.SLAVE_NOT_AVAILABLE
        create = CreateTopicRequest(
            topic="new", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
        )
        assert await refused(RequestCode.UPDATE_AND_CREATE_TOPIC, create) == (
            ResponseCode.SYSTEM_ERROR
        )
        assert "new" not in slave.context.topics
        assert "orders" not in slave.context.topics
        assert slave.context.store.log.end_offset == 0


async def test_a_slave_follows_topics_groups_and_offsets(tmp_path: Path) -> None:
    async with AsyncEmbeddedCluster(root=tmp_path, replicas=1, **QUICK) as cluster:
        master, slave = cluster.broker.context, cluster.slaves[0].context
        await cluster.send("orders", b"one", delay_level=1)
        assert master.groups.get("shipping") is not None
        master.offsets.commit("shipping", "orders", 2, 17)
        slave.offsets.commit("only-here", "orders", 0, 3)
        replica = slave.replica
        assert replica is not None
        await replica.sync_now()
        assert slave.topics.get("orders") == master.topics.get("orders")
        assert slave.topics.version == master.topics.version
        assert slave.groups.version == master.groups.version
        assert slave.offsets.get("shipping", "orders", 2) == 17
        assert slave.offsets.get("only-here", "orders", 0) == 3
        await eventually(lambda: (tmp_path / "slave-1" / "config" / "topics.json").exists())
        # Its own changes of these tables last until the master is asked again.
        slave.groups.get("made-by-the-slave")
        await replica.sync_now()
        assert "made-by-the-slave" not in slave.groups


async def test_reads_from_a_slave_commit_nothing_and_correct_nothing() -> None:
    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster, RemotingClient() as client:
        for number in range(8):
            await cluster.send("orders", b"%d" % number)
        await cluster.wait_for_slaves()
        slave = cluster.slaves[0]
        assert slave.context.replica is not None
        await slave.context.replica.sync_now()

        async def pull(offset: int) -> Any:
            header = pull_header("orders", queue_offset=offset, commit_offset=1, sys_flag=5)
            return await client.call(
                slave.address, RequestCode.PULL_MESSAGE, header, timeout_ms=5000
            )

        found = await pull(0)
        assert found.code == ResponseCode.SUCCESS
        beyond = await pull(1000)
        assert beyond.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert beyond.ext_fields["nextBeginOffset"] == "1000"
        assert beyond.ext_fields["suggestWhichBrokerId"] == "0"
        assert list(slave.context.offsets.pairs()) == []


async def test_runtime_info_tells_how_far_slaves_are() -> None:
    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster:
        await cluster.send("orders", b"one")
        await cluster.wait_for_slaves()
        end = str(cluster.broker.context.store.log.end_offset)
        slaves = cluster.broker.context.slaves
        await eventually(lambda: slaves.acknowledged.value == int(end))
        master, slave = await runtime_info(cluster.broker), await runtime_info(cluster.slaves[0])
        assert (master["brokerRole"], slave["brokerRole"]) == ("ASYNC_MASTER", "SLAVE")
        assert master["haSlaveCount"] == "1"
        assert master["haSlaveAckOffset"] == end
        (status,) = (text for key, text in master.items() if key.startswith("haSlave_"))
        assert status == f"ack {end}, behind 0 bytes, 0.0 s"
        assert (slave["haState"], slave["haLagBytes"], slave["haLagSeconds"]) == (
            "streaming",
            "0",
            "0.0",
        )


async def test_consumers_go_on_at_the_slave_when_the_master_is_gone() -> None:
    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster, RemotingClient() as client:
        await cluster.send("orders", b"one")
        await cluster.wait_for_slaves()
        # A slave that meets a new topic asks for its configuration soon.
        await eventually(lambda: "orders" in cluster.slaves[0].context.topics)
        await cluster.kill_master()
        answers = [
            await client.call(
                cluster.slaves[0].address,
                RequestCode.PULL_MESSAGE,
                pull_header("orders", queue_id=queue_id),
                timeout_ms=5000,
            )
            for queue_id in range(4)
        ]
        assert [answer.code for answer in answers].count(ResponseCode.SUCCESS) == 1
        await cluster.start_master()
        await cluster.send("orders", b"two")
        await cluster.wait_for_slaves()


@pytest.mark.parametrize(
    ("count", "trouble"), [(30, "it is another log"), (0, "that the master lacks")]
)
async def test_a_slave_takes_nothing_from_a_master_that_has_another_log(
    count: int, trouble: str, tmp_path: Path
) -> None:
    async with AsyncEmbeddedCluster(root=tmp_path, replicas=1, **QUICK) as cluster:
        for number in range(10):
            await cluster.send("orders", b"first life %d" % number)
        await cluster.wait_for_slaves()
        kept = log_of(cluster.slaves[0])
    shutil.rmtree(tmp_path / "store")
    async with AsyncEmbeddedCluster(root=tmp_path, **QUICK) as cluster:
        for number in range(count):
            await cluster.send("orders", b"second life %d" % number)
    async with AsyncEmbeddedCluster(root=tmp_path, replicas=1, **QUICK) as cluster:
        replica = cluster.slaves[0].context.replica
        assert replica is not None
        await eventually(lambda: trouble in replica.runtime_info()["haTrouble"])
        assert replica.runtime_info()["haState"] == "stopped"
        assert log_of(cluster.slaves[0]) == kept
        # What it has is served all the same, with the topics and groups that belong to it.
        with pytest.raises(OtherLogError):
            await replica.sync_now()
        assert cluster.slaves[0].context.topics.get("orders") is not None
        assert cluster.slaves[0].context.store.max_offset_in_queue("orders", 0) > 0


async def test_a_master_that_lost_its_disk_takes_no_topics_from_its_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its empty tables were taken over, though its log was refused."""
    monkeypatch.setattr(replica_module, "SYNC_MS", 20)
    monkeypatch.setattr(replica_module, "SYNC_RETRY_MS", 20)
    async with AsyncEmbeddedCluster(root=tmp_path, replicas=1, **QUICK) as cluster:
        await cluster.send("orders", b"one")
        await cluster.wait_for_slaves()
        context = cluster.slaves[0].context
        await eventually(lambda: context.topics.get("orders") is not None)
        await cluster.kill_master()
        shutil.rmtree(tmp_path / "store")
        await cluster.start_master()
        replica = context.replica
        assert replica is not None
        await eventually(lambda: "that the master lacks" in replica.runtime_info()["haTrouble"])
        with pytest.raises(OtherLogError):
            await replica.sync_now()
        assert context.topics.get("orders") is not None


async def test_whoever_is_no_slave_is_dropped() -> None:
    async with AsyncEmbeddedCluster(**QUICK) as cluster:
        await cluster.send("orders", b"one")
        port = cluster.broker.context.store.config.ha_listen_port

        async def answer_to(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(data)
                return await reader.read(1)
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        for bad in (encode_report(-1), encode_report(1 << 62), encode_report(0) + b"\x7f" * 8):
            while answer := await answer_to(bad):
                assert answer == b"\0", "a transfer that was under way already"
        slaves = cluster.broker.context.slaves
        await eventually(lambda: not slaves.links)
        assert slaves.acknowledged.value == 0
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(40)]
        await eventually(lambda: len(slaves.links) == SLAVE_COUNT_OF_HOST_MAX)
        for number in range(2, 6):
            _, other = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(f"127.0.0.{number}", 0)
            )
            writers.append(other)
        await eventually(lambda: len(slaves.links) == SLAVE_COUNT_OF_HOST_MAX + 4)
        for writer in writers:
            writer.close()
        await eventually(lambda: not slaves.links)


async def test_an_old_master_whose_log_cannot_be_compared_says_so(tmp_path: Path) -> None:
    """Its new master was said to have all of it; as a slave it would have dropped everything."""
    async with AsyncEmbeddedCluster(root=tmp_path) as cluster:
        await cluster.send("orders", b"one")
        config = cluster.broker.context.store.config
    size = config.commit_log_file_size
    master = NewMaster("10.0.0.1:10911", "10.0.0.1:10912", MasterRange(size, 2 * size))
    with (
        Rejoining.opened(config, master) as rejoining,
        pytest.raises(FailoverError, match="nothing can be compared"),
    ):
        await rejoining.surplus()
