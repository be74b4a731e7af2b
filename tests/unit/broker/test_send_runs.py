"""Which sends are gathered to be stored together, and which are not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker import send_runs
from flintmq.format.codes import RequestCode, ResponseCode
from flintmq.model.property_names import DELAY
from flintmq.store.run_encoding import Run
from flintmq.store.runs import Encode
from tests.unit.broker.broker_kit import Site, Wire, run, send_header, site


class Watched:
    """A broker whose runs are counted."""

    def __init__(self, here: Site, wire: Wire) -> None:
        self.site = here
        self.wire = wire
        self.parts = here.broker.parts
        self.counts: list[int] = []
        put_run = self.parts.store.put_run

        def counted(encode: Encode[Any], store_host: bytes) -> tuple[Run, Any] | None:
            stored = put_run(encode, store_host)
            self.counts.append(0 if stored is None else stored[0].message_count)
            return stored

        self.parts.store.put_run = counted  # type: ignore[method-assign]

    async def send(self, text: str = "", topic: str = "T", **more: Any) -> int:
        """Send one message and return the code of the answer."""
        header = replace(send_header(topic, **more), properties=text)
        answer = await self.wire.call(RequestCode.SEND_MESSAGE_V2, header, b"body")
        return answer.code


@asynccontextmanager
async def watched(root: Path, **settings: Any) -> AsyncIterator[Watched]:
    async with site(root, **settings) as here:
        wire = await here.client()
        # The topic is made, and its queue and index have begun.
        await wire.send("T", properties={"KEYS": "k"})
        yield Watched(here, wire)


def test_a_plain_send_is_gathered(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send("KEYS\x01k\x02TAGS\x01a\x02WAIT\x01true\x02") == 0
            assert await broker.send() == 0
            assert broker.counts == [1, 1]
            (_, stored, _) = await broker.wire.pull("T", max_msg_nums=32)
            assert stored.properties == {"KEYS": "k", "TAGS": "a", "CLUSTER": "TestCluster"}

    run(check())


@pytest.mark.parametrize(
    "text",
    [
        "DELAY\x011\x02",
        "TRAN_MSG\x01true\x02",
        "INNER_MULTI_DISPATCH\x01a\x02",
        "CLUSTER\x01mine\x02",
        "a\x01b\x02a\x01c\x02",
        "a\x01\x02",
        "\x01b\x02",
        "alone\x02",
        "alone\x02b\x01c\x01d\x02",
        "WAIT\x01true\x02a\x01b\x02",
    ],
)
def test_properties_that_mean_more_are_looked_at_one_by_one(tmp_path: Path, text: str) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send(text) == 0
            assert broker.counts == []

    run(check())


def test_a_delayed_message_waits_although_others_like_it_were_gathered(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            await broker.send("a\x01b\x02")
            await broker.send(f"{DELAY}\x011\x02")
            assert len(await broker.wire.pull("T", max_msg_nums=32)) == 2

    run(check())


def test_a_disk_that_is_waited_for_lets_nothing_be_gathered(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
            assert await broker.send() == 0
            assert broker.counts == []

    run(check())


def test_a_topic_that_has_changed_is_checked_again(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send(queue_id=3) == 0
            topics = broker.parts.topics
            topic = topics.get("T")
            assert topic is not None
            topics.put(replace(topic, read_queue_count=2, write_queue_count=2))
            assert await broker.send(queue_id=3) == ResponseCode.SYSTEM_ERROR
            assert await broker.send(queue_id=1) == 0

    run(check())


def test_settings_that_have_changed_count_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send() == 0
            broker.parts.live_config.update(b"brokerPermission=4")
            topics = broker.parts.topics
            topic = topics.get("T")
            assert topic is not None
            topics.put(replace(topic, order=True))
            assert await broker.send() == ResponseCode.NO_PERMISSION

    run(check())


def test_a_store_that_takes_nothing_says_so_for_each_message(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            broker.parts.store.appender.closed = True
            assert await broker.send() == ResponseCode.SERVICE_NOT_AVAILABLE
            assert broker.counts == [0]
            broker.parts.store.appender.closed = False
            assert await broker.send() == 0

    run(check())


@pytest.mark.parametrize("machine_code", ["true", "false"])
def test_machine_code_is_loaded_for_many_sends_unless_told_otherwise(
    machine_code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Never:
        def __init__(self, load: object) -> None:
            self.get = lambda: asked.append(1)

    monkeypatch.setattr(send_runs, "Later", Never)

    async def main() -> None:
        async with watched(tmp_path, machineCode=machine_code) as broker:
            sends = [broker.send() for _ in range(send_runs.COMPILED_COUNT_MIN)]
            assert set(await asyncio.gather(*sends)) == {ResponseCode.SUCCESS}
            # One at a time, it would never pay.
            assert await broker.send() == ResponseCode.SUCCESS

    run(main())
    assert len(asked) == (machine_code == "true")
