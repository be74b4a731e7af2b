"""No request makes the event loop wait for the disk: syncs are done in threads."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker import read_settings, run_broker
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import CreateTopicRequest, DeleteGroupRequest, TopicRequest
from flintmq.testing import ManualClock
from tests.kits.broker.broker_kit import (
    SMALL,
    START_MS,
    Site,
    Wire,
    consumer,
    eventually,
    site,
)


class Syncs:
    """Counts syncs by whether the loop waited for them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._loop_thread = threading.get_ident()
        self.on_loop: list[str] = []
        self.elsewhere = 0
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, sync: Callable[[Any], None]) -> Callable[[Any], None]:
        def counted(file: Any) -> None:
            if threading.get_ident() == self._loop_thread:
                self.on_loop.append(name)
            else:
                self.elsewhere += 1
            sync(file)

        return counted


async def make_everything(here: Site, wire: Wire) -> None:
    """Make topics, groups and queues, and delete them again."""
    header = CreateTopicRequest(
        topic="made", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6
    )
    await wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    for topic in ("made", "sent-to"):
        for queue_id in range(3):
            await wire.send(topic, queue_id=queue_id)
    assert (await wire.heartbeat(consumer=consumer("group", "made"))).code == ResponseCode.SUCCESS
    here.broker.context.dispatch()
    await wire.pull("made", consumer_group="group")
    await wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic="made"))
    await wire.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupRequest(group_name="group"))
    await wire.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    await wire.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


async def test_nothing_that_clients_and_operators_do_syncs_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        syncs = Syncs(monkeypatch)
        await make_everything(here, wire)
        assert syncs.on_loop == []
        assert syncs.elsewhere > 0
        assert here.broker.context.store.queues.get("made", 0) is None
        assert (await wire.send("made")).queue_offset == 0


async def test_settings_are_written_by_a_thread_and_the_last_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, overlay = ManualClock(START_MS), tmp_path / "changed.properties"
    config, store = read_settings(SMALL | {"storePathRootDir": str(tmp_path / "store")})
    async with run_broker(config, store, clock=clock, overlay=overlay) as broker:
        here = Site(broker, clock)
        wire, syncs = await here.client(), Syncs(monkeypatch)
        bodies = [f"shortPollingTimeMills={number}".encode() for number in range(1, 20)]
        code = RequestCode.UPDATE_BROKER_CONFIG
        answers = await asyncio.gather(*(wire.call(code, None, body) for body in bodies))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert syncs.on_loop == []
        assert syncs.elsewhere > 0
        assert b"shortPollingTimeMills=19" in overlay.read_bytes()
        await here.close()


async def test_a_send_to_a_topic_that_is_being_deleted_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal is made durable in a thread; a message that comes meanwhile begins anew."""
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        await wire.send("T", b"old")
        here.broker.context.dispatch()
        syncing, go_on = threading.Event(), threading.Event()
        durability = here.broker.context.store.durability
        checkpoint = durability.checkpoint

        def slow() -> None:
            syncing.set()
            assert go_on.wait(20)
            checkpoint()

        monkeypatch.setattr(durability, "checkpoint", slow)
        deleting = asyncio.ensure_future(
            wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic="T"))
        )
        await eventually(syncing.is_set)
        assert (await other.send("T", b"new")).queue_offset == 0
        assert not deleting.done()
        go_on.set()
        assert (await deleting).code == ResponseCode.SUCCESS
        assert [record.body for record in await other.pull("T")] == [b"new"]
