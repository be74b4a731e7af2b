"""The metrics of a broker, as a scrape finds them after requests of known effect."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.measuring import lag_metrics
from flintmq.broker.measuring.lag_metrics import LagReader
from flintmq.format.message_id import decode_offset_id
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.offsets import UpdateConsumerOffsetRequest
from flintmq.format.wire.headers.transaction import EndTransactionRequest
from flintmq.model.topic_config import TopicConfig
from flintmq.store.running_flags import RunningFlag
from tests.kits.broker.access_kit import guarded_site
from tests.kits.broker.broker_kit import Site, consumer, site
from tests.kits.broker.remoting_kit import eventually
from tests.kits.broker.scrape_kit import exchange, http_get, scrape
from tests.kits.broker.stuck_disk import slow_disk

COMMIT, ROLLBACK = 8, 12


@contextlib.asynccontextmanager
async def measured(root: Path, **settings: Any) -> AsyncIterator[tuple[Site, str]]:
    shown = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    async with site(root, **shown, **settings) as here:
        assert here.broker.metrics_address is not None
        yield here, here.broker.metrics_address


async def test_a_broker_shows_no_metrics_unless_asked(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        assert here.broker.metrics_address is None


async def test_messages_in_and_out_are_counted_by_topic_and_group(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        await wire.heartbeat(consumer=consumer("readers", "orders"), producer="writers")
        for _ in range(3):
            await wire.send("orders", b"12345")
        await wire.pull("orders", consumer_group="readers")
        scraped = await scrape(address)
    labels = {"topic": "orders", "cluster": "TestCluster", "node_id": "broker-a"}
    assert scraped.value("rocketmq_messages_in_total", **labels, is_system="false") == 3
    assert scraped.value("rocketmq_throughput_in_total", **labels) > 15
    group = labels | {"consumer_group": "readers", "is_retry": "false"}
    assert scraped.value("rocketmq_messages_out_total", **group) == 3
    assert scraped.value("rocketmq_consumer_connections", consumer_group="readers") == 1
    assert scraped.value("rocketmq_producer_connections", language="JAVA") == 1
    assert scraped.value("rocketmq_producer_offset", broker="broker-a", topic="orders") == 3
    assert scraped.value("rocketmq_group_count", group="readers") == 1
    assert scraped.value("flintmq_store_puts_total") == 3
    assert scraped.value("flintmq_connections") == 1


async def test_sends_that_wait_for_the_disk_are_told_as_in_the_status(tmp_path: Path) -> None:
    async with measured(tmp_path, flushDiskType="SYNC_FLUSH") as (here, address):
        wire, context = await here.client(), here.broker.context
        await wire.send("orders")
        with slow_disk(context.store) as begun:
            waiting = asyncio.create_task(wire.send("orders"))
            await asyncio.to_thread(begun.wait, 10)
            await eventually(lambda: context.puts.waiting_count == 1)
            await eventually(lambda: context.puts.waited_ms > 0)
            scraped = await scrape(address)
        await waiting
    prefix = "rocketmq_brokeruntime_send_threadpool"
    assert scraped.value(f"{prefix}_queue_size") == 1
    assert scraped.value(f"{prefix}queue_headwait_timemills") > 0


async def test_the_lag_of_a_group_is_told_in_messages_and_in_time(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        for _ in range(4):
            await wire.send("orders")
        committed = UpdateConsumerOffsetRequest(
            consumer_group="readers", topic="orders", queue_id=0, commit_offset=1
        )
        await wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, committed)
        here.clock.advance(5000)
        scraped = await scrape(address)
    labels = {"topic": "orders", "consumer_group": "readers"}
    assert scraped.value("rocketmq_consumer_lag_messages", **labels) == 3
    assert scraped.value("rocketmq_consumer_lag_latency", **labels) == 5000
    assert scraped.value("rocketmq_group_diff", group="readers", topic="orders") == 3
    assert scraped.value("rocketmq_group_get_latency_by_storetime", group="readers") == 5000


async def test_what_is_fetched_and_not_committed_is_in_flight(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        await wire.heartbeat(consumer=consumer("readers", "orders"))
        for _ in range(6):
            await wire.send("orders")
            here.clock.advance(1000)
        # Pulled up to 4 by the time of the third pull, of which 1 is committed.
        for offset in (0, 2, 4):
            await wire.pull(
                "orders",
                consumer_group="readers",
                queue_offset=offset,
                max_msg_nums=2,
                sys_flag=5,
                commit_offset=min(offset, 1),
            )
        online = await scrape(address)
        await wire.client.close()
        await eventually(lambda: here.broker.context.consumers.get("readers") is None)
        offline = await scrape(address)
    labels = {"topic": "orders", "consumer_group": "readers"}
    assert online.value("rocketmq_consumer_lag_messages", **labels) == 5
    assert online.value("rocketmq_consumer_inflight_messages", **labels) == 3
    assert online.value("rocketmq_consumer_ready_messages", **labels) == 2
    assert online.value("rocketmq_consumer_lag_latency", **labels) == 5000
    assert online.value("rocketmq_consumer_queueing_latency", **labels) == 2000
    assert offline.value("rocketmq_consumer_inflight_messages", **labels) == 0
    assert offline.value("rocketmq_consumer_ready_messages", **labels) == 5
    assert offline.value("rocketmq_consumer_queueing_latency", **labels) == 5000


async def test_few_times_are_read_from_the_disk_and_each_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_metrics, "COLD_READS_MAX", 1)
    async with site(tmp_path, accessMessageInMemoryMaxRatio=0) as here:
        wire = await here.client()
        for topic in ("a", "b"):
            await wire.send(topic)
            await wire.send("filler", b"x" * 100_000)
            here.broker.context.offsets.commit("readers", topic, 0, 0)
        monkeypatch.setattr(here.broker.context.store.reader, "is_on_disk", lambda *_: True)
        reader = LagReader(here.broker.context)
        known = []
        for _ in range(3):
            reader.begin()
            known.append([bool(reader.lag(topic, "readers").since_ms) for topic in ("a", "b")])
    assert known == [[True, False], [True, True], [True, True]]


async def test_dead_letters_and_retries_have_metrics_of_their_own(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        for topic in ("%DLQ%readers", "%RETRY%readers"):
            here.broker.context.topics.put(
                TopicConfig(name=topic, read_queue_count=1, write_queue_count=1)
            )
            await wire.send(topic, default_topic_queue_nums=1)
        scraped = await scrape(address)
    assert scraped.value("rocketmq_send_to_dlq_messages_total", consumer_group="readers") == 1
    assert scraped.value("rocketmq_topic_dlq_offset", group="readers") == 1
    assert scraped.value("rocketmq_topic_retry_offset", topic="%RETRY%readers") == 1


async def test_a_frame_that_is_none_is_counted_by_its_reason(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        await exchange(here.broker.address, b"GET / HTTP/1.1\r\n\r\n")
        await exchange(here.broker.address, b"\x00\x00\x00\x0a\x00\x00\x00\x06{nope}")
        await eventually(lambda: here.broker.server.rejected_counts.total() == 2)
        scraped = await scrape(address)
    assert scraped.value("flintmq_frames_rejected_total", reason="frame") == 1
    assert scraped.value("flintmq_frames_rejected_total", reason="header") == 1


async def test_denied_requests_are_counted_by_their_reason(tmp_path: Path) -> None:
    shown: dict[str, Any] = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    async with guarded_site(tmp_path, **shown) as here:
        wire = await here.client()
        for _ in range(2):
            await wire.send_raw("orders")
        assert here.broker.metrics_address is not None
        scraped = await scrape(here.broker.metrics_address)
    assert list(scraped.series("flintmq_acl_denied_total").values()) == [2]


async def test_transactions_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        marks = {"TRAN_MSG": "true", "PGROUP": "producers"}
        for how in (COMMIT, ROLLBACK, COMMIT, None):
            sent = await wire.send("orders", sys_flag=4, properties=marks)
            if how is not None:
                header = EndTransactionRequest(
                    producer_group="producers",
                    tran_state_table_offset=sent.queue_offset,
                    commit_log_offset=decode_offset_id(sent.msg_id)[1],
                    commit_or_rollback=how,
                    msg_id="U1",
                )
                await wire.call(RequestCode.END_TRANSACTION, header)
        scraped = await scrape(address)
    assert scraped.value("rocketmq_commit_messages_total", topic="orders") == 2
    assert scraped.value("rocketmq_rollback_messages_total", topic="orders") == 1
    assert scraped.value("rocketmq_half_messages") == 4, "no check has gone over them yet"


async def test_long_turns_are_told_by_their_causes(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        here.broker.context.watchdog.note("sample", 1.5)
        scraped = await scrape(address)
    assert scraped.value("flintmq_long_turns_total", cause="sample") == 1
    assert scraped.value("flintmq_long_turn_worst_seconds", cause="sample") == 1.5


async def test_every_sync_of_the_log_is_in_the_histogram(tmp_path: Path) -> None:
    async with measured(tmp_path, flushDiskType="SYNC_FLUSH") as (here, address):
        wire = await here.client()
        await wire.send("orders")
        scraped = await scrape(address)
        count = here.broker.context.store.flusher.latency.count
    assert 1 <= scraped.value("flintmq_store_fsync_seconds_count") <= count
    assert scraped.value("rocketmq_storage_flush_behind_bytes") == 0


async def test_a_broker_with_a_store_that_takes_nothing_is_not_ready(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        assert (await http_get(address, "/readyz")).status == 200
        flags = here.broker.context.store.flags
        flags.set(RunningFlag.DISK_FULL, "97 percent used")
        answer = await http_get(address, "/readyz")
        scraped = await scrape(address)
        flags.clear(RunningFlag.DISK_FULL)
        assert (await http_get(address, "/readyz")).status == 200
    assert answer.status == 503
    assert b"[-] store: disk full: 97 percent used" in answer.body
    assert scraped.value("flintmq_store_flag", flag="disk full") == 1


async def test_a_broker_that_no_name_server_knows_is_not_ready(tmp_path: Path) -> None:
    async with measured(tmp_path, namesrvAddr="127.0.0.1:1") as (_, address):
        answer = await http_get(address, "/readyz")
    assert answer.status == 503
    assert b"[-] registration: no name server has the broker: 127.0.0.1:1" in answer.body


async def test_more_topics_than_the_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    async with measured(tmp_path, metricsOtelCardinalityLimit=20) as (here, address):
        for number in range(50):
            here.broker.context.topics.put(TopicConfig(name=f"topic-{number}"))
        count = len(here.broker.context.topics)
        scraped = await scrape(address)
    assert len(scraped.series("rocketmq_producer_offset")) == 20
    left_out = scraped.value("flintmq_metrics_left_out_series", metric="rocketmq_producer_offset")
    assert left_out == count - 20
    assert scraped.value("rocketmq_topic_number") == count
