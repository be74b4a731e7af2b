"""How long requests take, how large messages are and for how long they wait, by scrapes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.measuring import size_metrics
from flintmq.broker.measuring.size_metrics import MessageSizes
from flintmq.format.wire.codes import RequestCode
from flintmq.remoting.fair_turns import FairTurns
from flintmq.remoting.request_latencies import KIND_COUNT_MAX, RequestLatencies
from tests.kits.broker.access_kit import guarded_site
from tests.kits.broker.broker_kit import Site, consumer, site
from tests.kits.broker.remoting_kit import eventually
from tests.kits.broker.scrape_kit import Scraped, scrape

SHOWN = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


@contextlib.asynccontextmanager
async def measured(root: Path, **settings: Any) -> AsyncIterator[tuple[Site, str]]:
    async with site(root, **SHOWN, **settings) as here:
        assert here.broker.metrics_address is not None
        yield here, here.broker.metrics_address


def answered(scraped: Scraped, request: str, response: str = "success") -> dict[str, float]:
    """Return how many requests were answered, by whether they were held."""
    labels = {"protocol_type": "remoting", "request_code": request, "response_code": response}
    found = scraped.series("rocketmq_rpc_latency_count", **labels)
    return {dict(one)["is_long_polling"]: count for one, count in found.items()}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_every_answered_request_has_its_time(tmp_path: Path, flush: str) -> None:
    async with measured(tmp_path, flushDiskType=flush) as (here, address):
        wire = await here.client()
        await wire.heartbeat(consumer=consumer("readers", "orders"))
        for _ in range(2):
            await wire.send("orders")  # The first one makes the topic.
        await asyncio.gather(*(wire.send("orders") for _ in range(5)))
        for _ in range(3):
            await wire.pull("orders", consumer_group="readers")
        scraped = await scrape(address)
    assert answered(scraped, "send_message_v2") == {"false": 7}
    assert answered(scraped, "pull_message") == {"false": 3}
    assert answered(scraped, "heart_beat") == {"false": 1}
    buckets = scraped.series("rocketmq_rpc_latency_bucket", request_code="send_message_v2")
    assert {dict(one)["le"] for one in buckets} >= {"1.0", "3.0", "5.0", "7.0", "10.0", "+Inf"}


async def test_a_pull_that_was_held_took_as_long_as_it_was_held(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        await wire.send("orders")
        pull = asyncio.create_task(wire.pull("orders", queue_offset=1, sys_flag=6))
        await eventually(lambda: here.broker.context.held.count == 1)
        assert answered(await scrape(address), "pull_message") == {}
        await wire.send("orders")
        assert len(await pull) == 1
        scraped = await scrape(address)
    assert answered(scraped, "pull_message") == {"true": 1}


async def test_what_peers_make_up_is_one_series(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        for code in (7777, 7778, 7779):
            await wire.call(code)
        scraped = await scrape(address)
    assert answered(scraped, "unknown", "request_code_not_supported") == {"false": 3}


async def test_what_is_denied_is_answered_too(tmp_path: Path) -> None:
    async with guarded_site(tmp_path, **SHOWN) as here:
        wire = await here.client()
        for code in (RequestCode.GET_BROKER_CONFIG, 7777):
            await wire.call(code)
        assert here.broker.metrics_address is not None
        scraped = await scrape(here.broker.metrics_address)
    assert answered(scraped, "get_broker_config", "system_error") == {"false": 1}
    assert answered(scraped, "unknown", "system_error") == {"false": 1}


async def test_kinds_of_answers_have_a_limit() -> None:
    latencies = RequestLatencies(FairTurns())
    for code in range(KIND_COUNT_MAX + 5):
        latencies.note(code, 0, latencies.began)
    assert len(list(latencies)) == KIND_COUNT_MAX


async def test_sizes_are_those_of_records_and_count_once(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        for size in (1, 1, 2000, 10_000):
            await wire.send("orders", b"x" * size)
        await wire.send("later", properties={"DELAY": "1"})
        first = await scrape(address)
        assert (await scrape(address)).series("rocketmq_message_size_count") == first.series(
            "rocketmq_message_size_count"
        )
        await wire.send("orders", b"x")
        second = await scrape(address)
    assert first.value("rocketmq_message_size_bucket", topic="orders", le="1024.0") == 2
    assert first.value("rocketmq_message_size_bucket", topic="orders", le="4096.0") == 3
    assert first.value("rocketmq_message_size_bucket", topic="orders", le="+Inf") == 4
    put = first.value("rocketmq_throughput_in_total", topic="orders")
    assert first.value("rocketmq_message_size_sum", topic="orders") == put
    assert second.value("rocketmq_message_size_count", topic="orders") == 5
    topics = {dict(one)["topic"] for one in second.series("rocketmq_message_size_count")}
    assert topics == {"orders"}, "what waits counts when it is delivered"


async def test_many_units_are_read_over_several_scrapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size_metrics, "UNITS_PER_SCRAPE", 3)
    monkeypatch.setattr(size_metrics, "UNITS_PER_STEP", 2)
    async with site(tmp_path) as here:
        wire, store = await here.client(), here.broker.context.store
        await wire.send("orders")
        sizes = MessageSizes(store)
        for _ in range(7):
            await wire.send("orders")
        seen = []
        for _ in range(4):
            assert list(sizes.read())
            seen.append(sizes.by_topic["orders"].count)
    assert seen == [3, 6, 7, 7], "what was there before is not counted"


async def test_a_topic_that_was_deleted_and_made_again_counts_from_its_start(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire, context = await here.client(), here.broker.context
        sizes = MessageSizes(context.store)
        for _ in range(3):
            await wire.send("orders")
        assert list(sizes.read())
        context.topics.delete("orders")
        context.store.clean_unused_topics({topic.name for topic in context.topics})
        await wire.send("orders")
        assert list(sizes.read())
    assert sizes.by_topic["orders"].count == 4


async def test_a_topic_that_was_deleted_is_forgotten(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, context = await here.client(), here.broker.context
        sizes = MessageSizes(context.store)
        await wire.send("orders")
        assert list(sizes.read())
        assert list(sizes.by_topic) == ["orders"]
        context.topics.delete("orders")
        context.store.clean_unused_topics({topic.name for topic in context.topics})
        await wire.send("others")
        assert list(sizes.read())
    assert list(sizes.by_topic) == ["others"]


async def test_delays_are_told_by_the_topic_that_they_lead_to(tmp_path: Path) -> None:
    async with measured(tmp_path) as (here, address):
        wire = await here.client()
        await wire.send("orders", properties={"DELAY": "5"})
        await wire.send("orders", properties={"TIMER_DELAY_SEC": "7200"})
        await wire.send("orders")
        scraped = await scrape(address)
    assert scraped.value("rocketmq_delay_message_latency_sum", topic="orders") == 60 + 7200
    assert scraped.value("rocketmq_delay_message_latency_bucket", topic="orders", le="60.0") == 1
    assert scraped.value("rocketmq_delay_message_latency_count", topic="orders") == 2
