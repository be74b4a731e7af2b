"""How long others wait beside one client that asks for much: ``make bench-turns``.

A broker runs as a process of its own.  One client asks for something that takes long, another one,
in a process of its own too, asks for something small all the time; what counts is the longest wait
of the latter.  The broker's own count of long turns stands beside it.  Prints a table, and writes
JSON where asked.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import (
    BrokerConsumeStatsRequest,
    CreateTopicRequest,
    TopicRequest,
)
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.offsets import QueueBoundRequest, UpdateConsumerOffsetRequest
from flintmq.format.wire.headers.query import QueryMessageRequest
from flintmq.remoting import RemotingClient
from tests.kits.broker.broker_kit import pull_header, send_header
from tests.kits.processes.serve_process import serving

TIMEOUT_MS: Final = 120_000
BATCH: Final = 250
IN_FLIGHT: Final = 64
PULL_COUNT: Final = 100
NEW_TOPIC_COUNT: Final = 20
CHECK_INTERVAL_MS: Final = 4000
LOG_FILE_SIZE: Final = 16 << 20
ROLL_COUNT: Final = 8
LARGE_BODY: Final = bytes(1 << 20)
LARGE_BATCH: Final = 16_000
LARGE_BATCH_COUNT: Final = 20
RETENTION_TIMEOUT_S: Final = 120
OFFSETS_WRITTEN_S: Final = 6
"""A little longer than offsets wait to be written."""
SETTINGS: Final = {
    "longTurnMillis": 20,
    "mappedFileSizeCommitLog": LOG_FILE_SIZE,
    # So that a deletion by hand has something to delete.
    "fileReservedTime": 0,
    "transactionTimeOut": 0,
    "transactionCheckInterval": CHECK_INTERVAL_MS,
}
"""Half messages are asked about at once, so that a check has something to do."""


class Amounts(NamedTuple):
    """How much of everything the broker has."""

    messages: int
    groups: int
    topics: int
    halves: int


AMOUNTS: Final = Amounts(messages=300_000, groups=2000, topics=5000, halves=20_000)


class Waits(NamedTuple):
    """What another client waited meanwhile, in milliseconds, and what the broker has counted."""

    worst_ms: float
    median_ms: float
    seconds: float
    long_turns: int


async def _ask_for_little(orders: Connection) -> None:
    """Ask for the end of a queue between two orders, and tell how long each answer took.

    An order to begin is the address of a broker.
    """
    client, header = RemotingClient(), QueueBoundRequest(topic="hot", queue_id=0)
    while address := await asyncio.to_thread(orders.recv):
        waits: list[float] = []
        while not orders.poll():
            asked = time.perf_counter()
            await client.call(address, RequestCode.GET_MAX_OFFSET, header, timeout_ms=TIMEOUT_MS)
            waits.append((time.perf_counter() - asked) * 1000)
            if len(waits) == 1:
                orders.send(None)
            await asyncio.sleep(0.001)
        orders.recv()
        orders.send(waits)
    await client.close()


def _run_little(orders: Connection) -> None:
    asyncio.run(_ask_for_little(orders))


@contextlib.contextmanager
def little_client() -> Iterator[Connection]:
    """Run the client that asks for little: what the other one does must not hold it up."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_little, args=(theirs,))
    process.start()
    try:
        yield ours
        ours.send("")
        process.join()
    finally:
        process.kill()
        process.join()


class Turns:
    """A broker, one client that asks for much and one that asks for little."""

    def __init__(self, address: str, amounts: Amounts, little: Connection) -> None:
        self._address = address
        self._amounts = amounts
        self._much = RemotingClient()
        self._little = little
        self._first_ms = 0
        """When the first messages were stored: at the end of the chain of their key."""

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Ask for much, or fill the broker."""
        return await self._much.call(self._address, code, header, body, timeout_ms=TIMEOUT_MS)

    async def close(self) -> None:
        """Close the client that asks for much."""
        await self._much.close()

    async def _all(self, requests: list[Callable[[], Awaitable[Command]]]) -> None:
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(request: Callable[[], Awaitable[Command]]) -> None:
            async with gate:
                answer = await request()
                assert answer.code == ResponseCode.SUCCESS, answer

        await asyncio.gather(*map(one, requests))

    async def fill(self) -> None:
        """Make messages with one key and tag, topics, groups with offsets, and half messages."""
        amounts = self._amounts
        texts = b"KEYS\x01hot\x02TAGS\x01other\x02"
        body = encode_batch([BatchItem(0, b"x" * 100, texts)] * BATCH)
        header = send_header("hot", batch=True)
        code = RequestCode.SEND_BATCH_MESSAGE
        await self.ask(code, header, body)
        self._first_ms = int(time.time() * 1000)
        await self._all([lambda: self.ask(code, header, body)] * (amounts.messages // BATCH - 1))
        await self._all([self._topic(f"topic-{number}") for number in range(amounts.topics)])
        await self._all([self._offset(f"group-{number}") for number in range(amounts.groups)])

    def _topic(self, name: str) -> Callable[[], Awaitable[Command]]:
        header = CreateTopicRequest(topic=name, read_queue_nums=8, write_queue_nums=8, perm=6)
        return lambda: self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def _offset(self, group: str) -> Callable[[], Awaitable[Command]]:
        async def commit() -> Command:
            await self.ask(
                RequestCode.PULL_MESSAGE, pull_header("hot", consumer_group=group, max_msg_nums=1)
            )
            header = UpdateConsumerOffsetRequest(
                consumer_group=group, topic="hot", queue_id=0, commit_offset=5
            )
            return await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)

        return commit

    # -- what takes long ---------------------------------------------------------------------

    async def nothing(self) -> None:
        """Leave the broker alone."""
        await asyncio.sleep(1)

    async def pulls(self) -> None:
        """Pull as much as can be asked for, by a tag that nothing has."""
        header = pull_header("hot", max_msg_nums=2**31 - 1, subscription="none", sys_flag=4)
        await asyncio.gather(
            *(self.ask(RequestCode.PULL_MESSAGE, header) for _ in range(PULL_COUNT))
        )

    async def group_statistics(self) -> None:
        """Ask how far all groups have come."""
        await self.ask(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequest())

    async def all_topics(self) -> None:
        """Ask for the configuration of all topics."""
        await self.ask(RequestCode.GET_ALL_TOPIC_CONFIG)

    async def key_query(self) -> None:
        """Ask for the oldest messages of a key: its whole chain has to be followed."""
        header = QueryMessageRequest(
            topic="hot", key="hot", max_num=32, begin_timestamp=0, end_timestamp=self._first_ms
        )
        answer = await self.ask(RequestCode.QUERY_MESSAGE, header)
        assert answer.code == ResponseCode.SUCCESS, answer

    async def new_topics(self) -> None:
        """Send to topics that do not exist yet; all of them are registered and written anew."""
        for number in range(NEW_TOPIC_COUNT):
            await self.ask(RequestCode.SEND_MESSAGE_V2, send_header(f"new-{number}"), b"x")

    async def deleted_topics(self) -> None:
        """Delete topics with messages."""
        for number in range(NEW_TOPIC_COUNT):
            header = TopicRequest(topic=f"new-{number}")
            await self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def rolls(self) -> None:
        """Fill file after file of the log."""
        count = ROLL_COUNT * LOG_FILE_SIZE // len(LARGE_BODY)
        header, code = send_header("large"), RequestCode.SEND_MESSAGE_V2
        await self._all([lambda: self.ask(code, header, LARGE_BODY)] * count)

    async def retention(self) -> None:
        """Have the oldest files of the log deleted, and wait until queues and index followed."""
        before = int((await self.runtime_info())["commitLogMinOffset"])
        await self.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        deadline = time.monotonic() + RETENTION_TIMEOUT_S
        while time.monotonic() < deadline:
            if int((await self.runtime_info())["commitLogMinOffset"]) > before:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)

    async def state_writes(self) -> None:
        """Commit an offset of every group again, and wait until all offsets were written."""
        await self._all([self._offset(f"group-{number}") for number in range(self._amounts.groups)])
        await asyncio.sleep(OFFSETS_WRITTEN_S)

    async def transaction_check(self) -> None:
        """Leave half messages open until they were checked once."""
        header = send_header(
            "hot", sys_flag=4, properties={"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "u"}
        )
        code = RequestCode.SEND_MESSAGE_V2
        await self._all([lambda: self.ask(code, header, b"x")] * self._amounts.halves)
        await asyncio.sleep(2 * CHECK_INTERVAL_MS / 1000)

    async def large_batches(self) -> None:
        """Send batches of very many small messages, each with a few keys."""
        texts = "UNIQ_KEY\x01{0:032}\x02KEYS\x01a{0} b{0}\x02"
        body = encode_batch(
            [BatchItem(0, b"x" * 10, texts.format(n).encode()) for n in range(LARGE_BATCH)]
        )
        header, code = send_header("hot", batch=True), RequestCode.SEND_BATCH_MESSAGE
        await self._all([lambda: self.ask(code, header, body)] * LARGE_BATCH_COUNT)

    # -- measuring ---------------------------------------------------------------------------

    async def measure(self, much: Callable[[], Awaitable[None]]) -> Waits:
        """Ask for much and, all the while, for little."""
        before = await self._long_turns()
        self._little.send(self._address)
        await asyncio.to_thread(self._little.recv)
        began = time.perf_counter()
        await much()
        seconds = time.perf_counter() - began
        self._little.send(True)
        waits = sorted(await asyncio.to_thread(self._little.recv))
        counted = await self._long_turns() - before
        return Waits(waits[-1], waits[len(waits) // 2], seconds, counted)

    async def _long_turns(self) -> int:
        return int((await self.runtime_info())["longTurnCount"])

    async def runtime_info(self) -> dict[str, str]:
        """Return what the broker tells of itself."""
        answer = await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        found: dict[str, str] = loads_body(answer.body)["table"]
        return found


async def measure_all(
    address: str, amounts: Amounts, little: Connection, console: Console
) -> tuple[dict[str, Waits], str]:
    """Return the waits by cause, and the causes that the broker has counted."""
    turns = Turns(address, amounts, little)
    console.print("filling the broker ...")
    await turns.fill()
    causes: dict[str, Callable[[], Awaitable[None]]] = {
        "nothing": turns.nothing,
        f"{PULL_COUNT} pulls of everything, tag without messages": turns.pulls,
        f"statistics of {amounts.groups} groups": turns.group_statistics,
        f"configuration of {amounts.topics} topics": turns.all_topics,
        f"query of a key with {amounts.messages} entries": turns.key_query,
        f"state written: offsets of {amounts.groups} groups": turns.state_writes,
        f"state written: first sends to {NEW_TOPIC_COUNT} topics": turns.new_topics,
        f"deletion of {NEW_TOPIC_COUNT} topics": turns.deleted_topics,
        f"sends and check of {amounts.halves} half messages": turns.transaction_check,
        f"{ROLL_COUNT} rolls of the log": turns.rolls,
        "retention: log files deleted, queues and index follow": turns.retention,
    }
    found = {}
    for name, much in causes.items():
        console.print(f"measuring: {name}")
        found[name] = await turns.measure(much)
    counted = (await turns.runtime_info())["longTurnCauses"]
    await turns.close()
    return found, counted


async def measure_large_batches(address: str, little: Connection) -> tuple[Waits, str]:
    """Return the waits beside large batches that come to a broker that has just started."""
    turns = Turns(address, AMOUNTS, little)
    found = await turns.measure(turns.large_batches)
    counted = (await turns.runtime_info())["longTurnCauses"]
    await turns.close()
    return found, counted


@contextlib.contextmanager
def broker_of_its_own(settings: Mapping[str, object]) -> Iterator[str]:
    """Run a broker; yield its address."""
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-turns-") as work,
        serving(Path(work, "data"), "--log-level=warning", *sets, small=False) as group,
    ):
        yield group.brokers[0]


def measure_stalls(amounts: Amounts, console: Console) -> tuple[dict[str, Waits], str]:
    """Run brokers; return the waits by cause, and the causes that they have counted."""
    found, counted = {}, []
    with little_client() as little:
        name = f"{LARGE_BATCH_COUNT} batches of {LARGE_BATCH} messages"
        for what, machine_code in (("right after a start", True), ("without machine code", False)):
            console.print(f"measuring: {name} {what}")
            settings = {"longTurnMillis": 20, "machineCode": str(machine_code).lower()}
            with broker_of_its_own(settings) as address:
                found[f"{name} {what}"], causes = asyncio.run(
                    measure_large_batches(address, little)
                )
                counted.append(causes)
        with broker_of_its_own(SETTINGS) as address:
            others, causes = asyncio.run(measure_all(address, amounts, little, console))
    return found | others, "; ".join(filter(None, [*counted, causes]))


def stalls_table(found: Mapping[str, Waits], counted: str) -> Table:
    """Return the waits of others by what the broker was asked for meanwhile."""
    table = Table(
        *("beside", "worst wait, ms", "median wait, ms", "took, s", "turns over 20 ms"),
        caption=f"long turns by cause: {counted or 'none'}",
    )
    for name, waits in found.items():
        table.add_row(
            name,
            f"{waits.worst_ms:.1f}",
            f"{waits.median_ms:.2f}",
            f"{waits.seconds:.2f}",
            str(waits.long_turns),
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=AMOUNTS.messages)
    parser.add_argument("--groups", type=int, default=AMOUNTS.groups)
    parser.add_argument("--topics", type=int, default=AMOUNTS.topics)
    parser.add_argument("--halves", type=int, default=AMOUNTS.halves)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    amounts = Amounts(options.messages, options.groups, options.topics, options.halves)
    console = Console()
    found, counted = measure_stalls(amounts, console)
    console.print(stalls_table(found, counted))
    if options.json is not None:
        rows = {name: waits._asdict() for name, waits in found.items()}
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
