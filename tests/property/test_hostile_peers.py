"""Hostile peers beside a healthy client: fifty thousand requests a run.

Every request code, in both notations, with huge, negative, missing, odd-typed and repeated fields;
pipelined, cut anywhere, left half sent; from peers that read at once, slowly or never.  Meanwhile
a healthy client is answered correctly within a few turns of the loop, what peers make the broker
keep stays below its budgets and goes with them, nothing of theirs shows elsewhere, and no error
is logged that nobody expected.

``FLINTMQ_HOSTILE_SEED`` chooses other requests; a failure names the seed.
"""

import asyncio
import logging
import os
import random
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.pulling.pull_fast_path import KNOWN_PULL_COUNT_MAX, PullFastPath
from flintmq.broker.sending.send_fast_path import KNOWN_SEND_COUNT_MAX, SendFastPath
from flintmq.broker.tables.table_limits import ALL_CLIENTS_SIZE_MAX
from flintmq.broker.waiting.held_pulls import HELD_SIZE_MAX
from flintmq.format.wire.bodies.heartbeat import Heartbeat, encode_heartbeat
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.format.wire.headers.clients import ConsumerGroupRequest
from flintmq.format.wire.headers.offsets import QueryConsumerOffsetRequest
from flintmq.remoting import Connection, Limits
from flintmq.remoting.unread_answers import UnreadAnswers
from tests.kits.broker.broker_kit import (
    Site,
    consumer,
    eventually,
    pull_header,
    records,
    send_header,
    site,
)
from tests.kits.broker.hostile_requests import HostileRequests
from tests.kits.broker.slow_transport import SlowTransport

FIRST_SEED: Final = int(os.environ.get("FLINTMQ_HOSTILE_SEED", "1"))
SEEDS: Final = range(FIRST_SEED, FIRST_SEED + 5)
REQUEST_COUNT: Final = 10_000
"""Requests for each seed."""

PEER_COUNT: Final = 12
REQUESTS_BETWEEN_CHECKS: Final = 120
TURN_COUNT_MAX: Final = PEER_COUNT + 2
"""Turns of the loop within which the healthy client has its answer.

On a busy machine a slice of each of the others may take a whole turn.  One more is for the inbox:
bytes that no socket brought are looked at in the next turn."""

READ_SIZES: Final = (1 << 30, 1 << 30, 20_000, 0)
"""Bytes that peers read in a turn of the loop."""

LIMITS: Final = Limits(
    write_pause_size=32 << 10,
    write_drop_size=1 << 20,
    unread_answers_pause_size=128 << 10,
    unread_answers_size_max=1 << 20,
    half_frames_size_max=20 << 20,
)
"""Small, so that connections are paused, and have to share what all may have."""

SETTINGS: Final = {
    "mappedFileSizeCommitLog": 32 << 20,
    "maxMessageSize": 100_000,
    "flushConsumerOffsetInterval": 200,
    # Requests would be refused by their age, in milliseconds; here turns of the loop count.
    "brokerFastFailureEnable": "false",
}
GOOD_TOPIC: Final = "HealthyTopic"
GOOD_GROUP: Final = "HealthyGroup"


class HealthyClient:
    """Asks for what every client asks for, and knows what the answers have to be."""

    def __init__(self, here: Site) -> None:
        self._connection = Connection(here.broker.server)
        self._transport = SlowTransport(self._connection, 4000, read_size=1 << 30)
        self._connection.connection_made(self._transport)
        self._decoder = FrameDecoder()
        self._opaque = 0
        self.bodies: list[bytes] = []

    async def ask(self, code: int, header: Any = None, body: bytes = b"") -> Command:
        """Return the answer, which has to come within a few turns of the loop."""
        self._opaque += 1
        fields = {} if header is None else header.encode()
        command = Command(code=code, opaque=self._opaque, ext_fields=fields, body=body)
        self._connection.data_received(encode_command(command))
        for _ in range(TURN_COUNT_MAX):
            for answer in map(decode_command, self._decoder.frames(self._transport.read())):
                if answer.opaque == self._opaque and answer.is_response:
                    return answer
            await asyncio.sleep(0)
        raise AssertionError(f"no answer to {code} within {TURN_COUNT_MAX} turns")

    async def be_served(self) -> None:
        """Send, pull, commit and look around."""
        body = b"healthy %d" % len(self.bodies)
        sent = await self.ask(RequestCode.SEND_MESSAGE_V2, send_header(GOOD_TOPIC), body)
        assert sent.code == ResponseCode.SUCCESS, sent
        offset = len(self.bodies)
        assert sent.ext_fields["queueOffset"] == str(offset)
        self.bodies.append(body)
        header = pull_header(
            GOOD_TOPIC,
            consumer_group=GOOD_GROUP,
            queue_offset=offset,
            max_msg_nums=1,
            sys_flag=5,
            commit_offset=offset,
        )
        pulled = await self.ask(RequestCode.PULL_MESSAGE, header)
        assert [record.body for record in records(pulled.body)] == [body]
        await self.look_around(offset)

    async def look_around(self, offset: int) -> None:
        """Nothing of other peers shows in what is this client's own."""
        committed = await self.ask(
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffsetRequest(consumer_group=GOOD_GROUP, topic=GOOD_TOPIC, queue_id=0),
        )
        assert committed.ext_fields == {"offset": str(offset)}
        members = await self.ask(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequest(consumer_group=GOOD_GROUP)
        )
        assert members.body == b'{"consumerIdList":["healthy"]}'

    async def read_all(self) -> list[bytes]:
        """Return the bodies of the topic from its start."""
        found: list[bytes] = []
        while len(found) < len(self.bodies):
            header = pull_header(
                GOOD_TOPIC, consumer_group=GOOD_GROUP, queue_offset=len(found), sys_flag=4
            )
            pulled = await self.ask(RequestCode.PULL_MESSAGE, header)
            found += [bytes(record.body) for record in records(pulled.body)]
        return found


class HostilePeer:
    """One connection that is fed with hostile requests, in pieces of any size."""

    def __init__(self, here: Site, port: int, dice: random.Random) -> None:
        self.connection = Connection(here.broker.server)
        self._transport = SlowTransport(self.connection, port, read_size=dice.choice(READ_SIZES))
        self.connection.connection_made(self._transport)
        self._dice = dice
        self._unsent = b""
        self._patience = dice.randrange(10, 200)
        """Turns until it goes; those in which it is not read from count tenfold."""

    @property
    def is_done(self) -> bool:
        """Whether the server has closed it, or it is time for it to go."""
        return self._transport.is_closing() or self._patience <= 0

    def feed(self, requests: HostileRequests) -> None:
        """Have the server read some requests, the last one perhaps in part."""
        if not self._transport.is_reading():
            self._patience -= 10
            return
        self._patience -= 1
        count = self._dice.choice((0, 1, 1, 2, 5, 20))
        self._unsent += b"".join(requests.frame() for _ in range(count))
        size = len(self._unsent)
        if self._dice.random() < 0.4:
            size = self._dice.randrange(size + 1)
        chunk, self._unsent = self._unsent[:size], self._unsent[size:]
        if chunk:
            self.connection.data_received(chunk)

    def read(self) -> None:
        """Read as much as this peer does in a turn."""
        self._transport.read()

    def close(self) -> None:
        """Go, in the middle of whatever it is."""
        self._transport.close()


class Siege:
    """A broker, its healthy client and the peers around it."""

    def __init__(self, here: Site, seed: int) -> None:
        self._here = here
        self._dice = random.Random(f"peers {seed}")
        self.requests = HostileRequests(seed)
        self._peers: list[HostilePeer] = []
        self._ports = iter(range(5000, 65_000))
        server = here.broker.server
        server.limits = LIMITS
        self.account = server.unread_answers = UnreadAnswers(
            own_pause_size=LIMITS.write_pause_size,
            pause_size=LIMITS.unread_answers_pause_size,
            size_max=LIMITS.unread_answers_size_max,
        )
        self.good = HealthyClient(here)

    async def prepare(self) -> None:
        """Make what the healthy client has before anybody else comes."""
        wire = await self._here.client()
        await wire.send(GOOD_TOPIC, b"healthy 0")
        self.good.bodies.append(b"healthy 0")
        data = consumer(GOOD_GROUP, GOOD_TOPIC)
        beat = encode_heartbeat(Heartbeat(client_id="healthy", consumers=(data,)))
        context = self._here.broker.context
        # Its answer waits for the disk, because the group is new.
        self.good._connection.data_received(
            encode_command(Command(code=RequestCode.HEART_BEAT, body=beat))
        )
        await eventually(lambda: context.topics.keeper.is_saved and context.groups.keeper.is_saved)

    async def turn(self) -> None:
        """Let each peer send something, some read, and some go."""
        while len(self._peers) < PEER_COUNT:
            self._peers.append(HostilePeer(self._here, next(self._ports), self._dice))
        for peer in self._peers:
            peer.feed(self.requests)
        await asyncio.sleep(0)
        for peer in self._peers:
            peer.read()
            if peer.is_done:
                peer.close()
        self._peers = [peer for peer in self._peers if not peer.is_done]

    def check_budgets(self) -> None:
        """Nobody has made the broker keep more than it may."""
        server, context = self._here.broker.server, self._here.broker.context
        assert self.account.peak_size <= LIMITS.unread_answers_size_max
        unread = sum(one.unread_size for one in server.connections)
        assert unread <= self.account.total_size
        assert server.half_frames is not None
        assert server.half_frames.total_size <= LIMITS.half_frames_size_max
        assert context.held.size <= HELD_SIZE_MAX
        assert len(context.held._deadlines) <= 2 * context.held.count + 65
        assert context.consumers.sizes.total_size <= ALL_CLIENTS_SIZE_MAX
        sends = server.requests[RequestCode.SEND_MESSAGE_V2].bulk
        pulls = server.requests[RequestCode.PULL_MESSAGE].bulk
        assert isinstance(sends, SendFastPath)
        assert isinstance(pulls, PullFastPath)
        assert len(sends._known) <= KNOWN_SEND_COUNT_MAX
        assert len(pulls._known) <= KNOWN_PULL_COUNT_MAX
        for kind in [*sends._known, *pulls._known]:
            assert sum(map(len, filter(None, kind))) <= 1024

    async def end(self) -> None:
        """All peers go, and what was kept for them goes with them."""
        for peer in self._peers:
            peer.close()
        server, context = self._here.broker.server, self._here.broker.context
        healthy = {self.good._connection}
        # The client that made the topic has a connection too.
        await eventually(lambda: len(server.connections - healthy) == 1)
        assert server.half_frames is not None
        assert server.half_frames.total_size == 0
        assert context.held.count == context.held.size == 0
        assert self.account._sizes.keys() <= server.connections
        assert [group.name for group in context.consumers] == [GOOD_GROUP]
        assert not list(context.producers)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_healthy_client_is_served_beside_hostile_peers(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    print(f"FLINTMQ_HOSTILE_SEED={seed}")  # noqa: T201 - a failure is made again with it
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told))
    async with site(tmp_path, **SETTINGS) as here:
        siege = Siege(here, seed)
        await siege.prepare()
        checked = 0
        while siege.requests.count < REQUEST_COUNT:
            await siege.turn()
            if siege.requests.count - checked >= REQUESTS_BETWEEN_CHECKS:
                checked = siege.requests.count
                await siege.good.be_served()
                siege.check_budgets()
        assert await siege.good.read_all() == siege.good.bodies
        await siege.end()
        await siege.good.be_served()
        context = here.broker.context
        assert context.topics.keeper.is_saved or context.topics.keeper.save_now()
        assert context.offsets.keeper.is_saved or context.offsets.keeper.save_now()
    unexpected = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not unexpected, [(one.getMessage(), one.exc_info) for one in unexpected]
    assert not failures
