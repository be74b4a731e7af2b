"""Whoever waits for a broker that starts is told by HTTP that it lives, and how far it has come."""

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from flintmq.broker import Broker, read_settings, run_broker
from flintmq.store.errors import StoreLockedError
from flintmq.store.files.interface import FileLock
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.recovery.recovery_progress import RECORDS_PER_LOOK, RecoveryProgress
from flintmq.testing import ManualClock
from tests.kits.broker.broker_kit import SMALL
from tests.kits.broker.remoting_kit import eventually
from tests.kits.broker.scrape_kit import http_get, scrape


class SlowFiles(LocalFiles):
    """The files of a store whose start waits until somebody lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached = threading.Event()
        self.may_go_on = threading.Event()

    def lock(self, path: Path) -> FileLock:
        self.is_reached.set()
        assert self.may_go_on.wait(timeout=60)
        return super().lock(path)


class StartedBroker:
    """A broker whose start is under way."""

    def __init__(self, root: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.root = root
        self.files = SlowFiles()
        self.is_up, self.may_stop = asyncio.Event(), asyncio.Event()
        self.broker: Broker | None = None
        self.task = asyncio.create_task(self._run(port))

    async def _run(self, port: int) -> None:
        shown = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
        config, store = read_settings(SMALL | shown | {"storePathRootDir": str(self.root)})
        async with run_broker(config, store, files=self.files) as self.broker:
            self.is_up.set()
            await self.may_stop.wait()

    async def reached(self) -> None:
        await eventually(self.files.is_reached.is_set)


async def test_the_port_is_open_before_the_store_is(tmp_path: Path) -> None:
    starting = StartedBroker(tmp_path)
    await starting.reached()
    assert (await http_get(starting.address, "/healthz")).status == 200
    ready = await http_get(starting.address, "/readyz")
    assert ready.status == 503
    assert ready.body == b"[-] store: the store is being opened\nnot ready\n"
    scraped = await scrape(starting.address)
    assert scraped.value("flintmq_store_starting", node_id="broker-a") == 1
    starting.files.may_go_on.set()
    await starting.is_up.wait()
    ready = await http_get(starting.address, "/readyz")
    assert ready.status == 200, ready.body
    assert b"[+] store: ok" in ready.body
    scraped = await scrape(starting.address)
    assert scraped.value("flintmq_store_starting") == 0
    assert scraped.value("flintmq_store_puts_total") == 0
    starting.may_stop.set()
    await starting.task


async def test_who_gives_up_a_start_leaves_no_store_open(tmp_path: Path) -> None:
    starting = StartedBroker(tmp_path)
    await starting.reached()
    starting.task.cancel()
    starting.files.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting.task
    again = StartedBroker(tmp_path)
    again.files.may_go_on.set()
    await again.is_up.wait()
    again.may_stop.set()
    await again.task


async def test_a_start_that_fails_says_why_and_closes_the_port(tmp_path: Path) -> None:
    first, second = StartedBroker(tmp_path), StartedBroker(tmp_path)
    first.files.may_go_on.set()
    await first.is_up.wait()
    second.files.may_go_on.set()
    with pytest.raises(StoreLockedError):
        await second.task
    with pytest.raises(ConnectionRefusedError):
        await http_get(second.address, "/healthz")
    first.may_stop.set()
    await first.task


def test_progress_is_told_in_words_at_any_time() -> None:
    progress = RecoveryProgress(ManualClock(0))
    progress.note("checked", RECORDS_PER_LOOK, 500, 2000)
    assert progress.text == "recovering: checked 4096 records, at 500 of 2000"
