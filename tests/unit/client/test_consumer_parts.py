import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from flintmq import AsyncPushConsumer, ConsumeFrom, ConsumeResult
from flintmq.client.assigning.assigned_queue import AssignedQueue
from flintmq.client.assigning.assignment import Assignment
from flintmq.client.assigning.local_offsets import LocalOffsets
from flintmq.client.assigning.offset_store import NotedOffsets
from flintmq.client.assigning.sharing import SharingRules
from flintmq.client.consuming.consume_statistics import ConsumeStatistics
from flintmq.client.consuming.handlers import HandlerRunner
from flintmq.client.consuming.push_settings import PushSettings
from flintmq.client.errors import UsageError
from flintmq.model.message_queue import MessageQueue
from tests.kits.client.consumer_kit import GROUP, TOPIC, queue, run, site
from tests.kits.client.consumer_model import message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("concurrency", 1001),
        ("batch_size", 1025),
        ("pull_count", 0),
        ("queue_count_max", 65_536),
        ("topic_count_max", 0),
        ("suspend_queue_ms", 9),
        ("reconsume_times_max", -1),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=name):
        PushSettings(**{name: value})  # type: ignore[arg-type]


def test_the_limit_of_a_topic_is_shared_by_its_queues() -> None:
    settings = PushSettings(queue_count_max=100, topic_count_max=120, topic_size_max=10)
    assert [settings.count_limit(count) for count in (1, 4, 500)] == [100, 30, 1]
    assert settings.size_limit(20) == 1
    assert PushSettings(queue_count_max=100).count_limit(7) == 100


@pytest.mark.parametrize(
    "options",
    [
        {"subscriptions": {}},
        {"subscriptions": {"t": "||"}},
        {"subscriptions": {"t": ""}, "expression_type": "SQL92"},
        {"group": "no good"},
    ],
)
def test_a_consumer_that_makes_no_sense_is_refused_at_once(options: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"group": "g", "subscriptions": {"t": "*"}, "handler": print}
    with pytest.raises(UsageError):
        AsyncPushConsumer(namesrv="127.0.0.1:1", **(settings | options))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ConsumeResult.SUCCESS),
        (True, ConsumeResult.SUCCESS),
        (ConsumeResult.SUCCESS, ConsumeResult.SUCCESS),
        (False, ConsumeResult.LATER),
        (ConsumeResult.LATER, ConsumeResult.LATER),
        ("done", ConsumeResult.LATER),
    ],
)
async def test_only_none_and_true_mean_handled(value: object, expected: ConsumeResult) -> None:
    async def handle(_: object) -> object:
        return value

    for handler in (handle, lambda _: value):
        runner = HandlerRunner(handler, thread_count=1, takes_list=False)
        assert (await runner.run([message(0)])).result is expected
        runner.close(wait=True)


async def test_a_cancelled_consumer_is_not_taken_for_a_failed_handler() -> None:
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    runner = HandlerRunner(never, thread_count=1, takes_list=False)
    task = asyncio.create_task(runner.run([message(0)]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_offsets_in_a_file_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "group" / "offsets.json"
    store = LocalOffsets(path)
    await store.load()
    assert await store.read(queue(1)) is None
    store.update(queue(1), 5, increase_only=True)
    store.update(queue(1), 3, increase_only=True)
    store.forget(queue(1))
    await store.persist([])
    again = LocalOffsets(path)
    await again.load()
    assert await again.read(queue(1)) == 5
    written = path.stat().st_mtime_ns
    await again.persist([queue(1)])
    assert path.stat().st_mtime_ns == written
    await again.commit(queue(1), 2)
    assert json.loads(path.read_bytes())["offsets"][0]["offset"] == 2


@pytest.mark.parametrize("content", [b"", b"[]", b'{"offsets":[{}]}', b'{"offsets":[1]}', b"\xff"])
def test_a_damaged_file_of_offsets_is_told_of(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="holds no offsets"):
        run(LocalOffsets(path).load())


JAVA_FORM = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"orders"
\t\t}:42,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"orders"
\t\t}:7
\t}
}"""


async def test_offsets_that_a_java_client_left_are_taken_over_once(tmp_path: Path) -> None:
    java, ours = tmp_path / "offsets.json", tmp_path / "flintmq-offsets.json"
    java.write_text(JAVA_FORM)
    store = LocalOffsets(ours)
    await store.load()
    assert [await store.read(queue(number)) for number in (0, 1, 2)] == [7, 42, None]
    await store.commit(queue(1), 50)
    java.write_text(JAVA_FORM.replace("42", "99"))
    again = LocalOffsets(ours)
    await again.load()
    assert [await again.read(queue(number)) for number in (0, 1)] == [7, 50]


@pytest.mark.parametrize("damaged", ["", "{", '{"offsetTable":{1:2}}', '{"offsetTable":{{}:x}}'])
async def test_the_backup_of_a_java_client_counts_where_its_file_is_damaged(
    tmp_path: Path, damaged: str
) -> None:
    ours = tmp_path / "flintmq-offsets.json"
    (tmp_path / "offsets.json").write_text(damaged)
    (tmp_path / "offsets.json.bak").write_text(JAVA_FORM)
    store = LocalOffsets(ours)
    await store.load()
    assert await store.read(queue(1)) == 42
    (tmp_path / "offsets.json.bak").write_text(damaged)
    with pytest.raises(UsageError, match="holds no offsets"):
        await LocalOffsets(ours).load()


async def test_an_empty_table_of_a_java_client_is_no_offset(tmp_path: Path) -> None:
    (tmp_path / "offsets.json").write_text('{"offsetTable":{}}')
    store = LocalOffsets(tmp_path / "flintmq-offsets.json")
    await store.load()
    assert await store.read(queue(1)) is None


def test_rates_are_those_of_the_last_minute() -> None:
    now = 100.0
    statistics = ConsumeStatistics(monotonic=lambda: now)
    for second in range(120):
        now = 100.0 + second
        statistics.pulled("t", 30, 5)
        statistics.consumed("t", 30, 7, is_success=True)
    statistics.consumed("t", 2, 7, is_success=False)
    told = statistics.table()["t"]
    assert told["pullTPS"] == pytest.approx(30, rel=0.05)
    assert (told["pullRT"], told["consumeRT"], told["consumeFailedMsgs"]) == (5, 7, 2)
    now += 1000
    assert statistics.table()["t"]["consumeOKTPS"] == 0


class _NoOffsets(NotedOffsets):
    """Offsets of a group that has committed nothing yet; what it commits is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """There is nothing to load."""

    async def read(self, queue: MessageQueue) -> int | None:
        return None

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        self.committed |= {one: self._offsets[one] for one in queues if one in self._offsets}

    async def commit(
        self, queue: MessageQueue, offset: int, *, increase_only: bool = False
    ) -> None:
        self.committed[queue] = offset


class _NoUser:
    """Pulls nothing; knows where it was told to begin."""

    def __init__(self) -> None:
        self.begun: dict[MessageQueue, int] = {}

    def begin(self, one: AssignedQueue) -> None:
        self.begun[one.queue] = one.next_offset

    async def settle(self, one: AssignedQueue) -> bool:
        return True


@pytest.mark.parametrize("commits_start", [True, False])
async def test_the_offset_at_which_a_new_group_starts_is_committed_at_once(
    tmp_path: Path, *, commits_start: bool
) -> None:
    """Without that, a member that takes over before the first commit would start further on."""

    async with site(tmp_path) as here:
        await here.send(3, queue_count=1)
        offsets, user = _NoOffsets(), _NoUser()
        rules = SharingRules(consume_from=ConsumeFrom.LAST_OFFSET)
        client = here.producer.client
        await client.routes.subscribe_queues(TOPIC)
        assignment = Assignment(
            client, GROUP, rules, user=user, offsets=offsets, commits_start=commits_start
        )
        await assignment.assign([queue(0), queue(1)])
        assert user.begun == {queue(0): 3, queue(1): 0}
        assert offsets.committed == (user.begun if commits_start else {})
