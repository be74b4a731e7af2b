"""Damaged and made-up frames against a broker and a name server that run.

Whatever comes in: no processor fails in a way nobody expected, every request is answered or its
connection is closed, memory stays bounded, and a well-behaved client is served meanwhile.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import random
import types
import typing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintmq.broker import Broker
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command, encode_command
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.codec import Header, Int32
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.format.wire.headers.table import HEADERS
from flintmq.namesrv import Namesrv, NamesrvConfig, run_namesrv
from flintmq.remoting import RemotingClient, RemotingServer
from tests.kits.broker.broker_kit import Site, Wire, eventually, site
from tests.kits.broker.hostile_peer import HostilePeer, own_memory_kib
from tests.kits.golden.damaged_frames import DAMAGES, Damage, conversations

GOOD: Final = "TopicOfTheGood"
"""No request that is made up names it: an operator may well delete a topic."""
GROWTH_MAX_KIB: Final = 64 << 10
SERVED_EVERY: Final = 500
"""Frames between two requests of the well-behaved client."""
EXAMPLE_COUNT: Final = 300
DEADLINE_S: Final = 60
EXAMPLE_DEADLINE_S: Final = 15


class Stage:
    """A broker and a name server under attack, and a client of each that behaves."""

    def __init__(self, here: Site, good: Wire, namesrv: Namesrv, asker: RemotingClient) -> None:
        self.broker: Broker = here.broker
        self.namesrv = namesrv
        self._good = good
        self._asker = asker
        self._ports = itertools.count(1024)
        self._peers: list[HostilePeer] = []
        self.frame_count = 0

    @property
    def servers(self) -> tuple[RemotingServer, RemotingServer]:
        return self.broker.server, self.namesrv.server

    def peer(self, server: RemotingServer) -> HostilePeer:
        made = HostilePeer(server, 1024 + next(self._ports) % 60_000)
        self._peers.append(made)
        return made

    async def attack(self, frames: list[bytes]) -> None:
        """Send frames to both servers, each over a connection that lasts as long as it can."""
        for server in self.servers:
            peer = self.peer(server)
            for frame in frames:
                if peer.is_closed or peer.is_in_mid_frame:
                    peer.close()
                    peer = self.peer(server)
                peer.feed(frame)
                self.frame_count += 1
                if self.frame_count % SERVED_EVERY == 0:
                    await self.serve_the_good()
        await self.settle()

    async def settle(self) -> None:
        """Wait until every request was answered or closed off, then let the peers go."""
        # Pulls that wait are told that there is nothing, as they are when a broker stops.
        self.broker.context.held.close()
        for peer in self._peers:
            await eventually(lambda peer=peer: peer.is_closed or self._is_paid(peer))  # type: ignore[misc]
            peer.close()
        self._peers.clear()
        await asyncio.sleep(0)

    def _is_paid(self, peer: HostilePeer) -> bool:
        peer.read()
        return not peer.owed

    async def serve_the_good(self) -> None:
        offset = (await self._good.send(GOOD, b"message")).queue_offset
        (record,) = await self._good.pull(GOOD, queue_offset=offset, max_msg_nums=1)
        assert record.body == b"message"
        header = RouteRequest(topic="Unknown")
        answer = await self._asker.call(
            self.namesrv.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_ms=10_000
        )
        assert answer.opaque


@contextlib.asynccontextmanager
async def stage(root: Path) -> AsyncIterator[Stage]:
    config = NamesrvConfig(
        listen_port=0, kv_config_path=root / "kv.json", config_store_path=root / "changes"
    )
    async with (
        site(root / "store") as here,
        run_namesrv(config) as namesrv,
        RemotingClient() as asker,
    ):
        yield Stage(here, await here.client(), namesrv, asker)


def unexpected(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_damaged_recording_is_answered_or_closed_off(
    damage: Damage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    dice = random.Random(damage.__name__)

    async with stage(tmp_path) as scene:
        await scene.serve_the_good()
        before = own_memory_kib()
        for frames in conversations():
            await scene.attack([damaged(frame, damage, dice) for frame in frames])
        await scene.serve_the_good()
        assert own_memory_kib() - before < GROWTH_MAX_KIB
        count = scene.frame_count
    # Six kinds of damage, two servers: more than 60,000 in all.
    assert count > 10_000
    assert not unexpected(caplog)


def damaged(frame: bytes, damage: Damage, dice: random.Random) -> bytes:
    wire = bytearray(frame)
    damage(wire, dice)
    return bytes(wire)


# -- frames that hypothesis makes ------------------------------------------------------------------

NAMES: Final = ("Good", "T", "g", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "TestCluster", "New")
NUMBERS: Final = (*range(9), 32, 401, -1, 2**31 - 1, -(2**31))
LARGE_NUMBERS: Final = (2**63 - 1, -(2**63))
hostile_texts = (
    st.sampled_from(NAMES)
    | st.sampled_from(["", "-1", "true", "null", "*", "a||b", "9" * 30, "x" * 300, "127.0.0.1:1"])
    | st.sampled_from(["../../etc/passwd", "/", "a\nb=c", "TAGS\1a\2KEYS\1k\2", "DELAY\0013\2"])
    | st.sampled_from(["TRAN_MSG\1true\2PGROUP\1g\2UNIQ_KEY\1u\2", "7F00000100002A9F" + "0" * 16])
    | st.text(max_size=20)
)


USUAL: Final = {
    "batch": st.sampled_from(["false", "false", "false", "true"]),
    "consumer_group": st.just("g"),
    "default_topic": st.just("TBW102"),
    "topic": st.sampled_from(NAMES),
}
"""Without these nearly all sends and pulls would be refused at the door."""


def wire_texts(hint: Any) -> st.SearchStrategy[str | None]:
    """Texts that fit a field, so that most requests get as far as the processor."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return st.one_of(*map(wire_texts, typing.get_args(hint)))
    if hint is type(None):
        return st.none()
    if hint is str:
        return hostile_texts
    if hint is bool:
        return st.sampled_from(["true", "false"])
    return st.sampled_from(NUMBERS if hint == Int32 else NUMBERS + LARGE_NUMBERS).map(str)


def ext_fields(kind: type[Header]) -> st.SearchStrategy[dict[str, str | None]]:
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    names = zip(dataclasses.fields(kind), kind.wire_fields(), strict=True)
    return st.fixed_dictionaries(
        {wire: USUAL.get(field.name, wire_texts(hints[field.name])) for field, wire in names}
    )


MEMBERS: Final = (
    *("brokerName", "clientID", "consumerDataSet", "consumerGroup", "dataVersion", "groupName"),
    *("mqSet", "producerDataSet", "queueId", "subString", "subVersion", "subscriptionDataSet"),
    *("topic", "topicConfigSerializeWrapper", "topicConfigTable"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | hostile_texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(MEMBERS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)
bodies = (
    st.binary(max_size=60)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.sampled_from([b"", b"{", b"[" * 2000, b"brokerPermission=x\n", b"x=y", bytes(200)])
)


FIELDS: Final = {code: ext_fields(pair.request) for code, pair in HEADERS.items()}
CODES: Final = (
    st.sampled_from(sorted(FIELDS))
    | st.sampled_from(
        [
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.PULL_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.HEART_BEAT,
            RequestCode.REGISTER_BROKER,
        ]
    )
    | st.integers(-(2**15), 2**15 - 1)
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request with the names of its code and values that may fit."""
    code = draw(CODES)
    fields = draw(FIELDS[code]) if code in FIELDS else {}
    spoilt = draw(st.none() | st.sampled_from(sorted(fields))) if fields else None
    if spoilt is not None:
        fields[spoilt] = draw(st.none() | hostile_texts)
    return encode_command(
        Command(
            code=code,
            opaque=draw(st.integers(0, 2**31 - 1)),
            flag=draw(st.sampled_from([0, 0, 0, ONE_WAY_FLAG, 1])),
            version=draw(st.sampled_from([0, 399, 401, 2**15 - 1])),
            ext_fields={name: text for name, text in fields.items() if text is not None},
            body=draw(bodies),
            serialize_type=draw(st.sampled_from(HeaderType)),
        )
    )


def test_made_up_requests_are_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        scene_context = stage(tmp_path)
        scene = runner.run(scene_context.__aenter__())
        stack.callback(lambda: runner.run(scene_context.__aexit__(None, None, None)))
        runner.run(scene.serve_the_good())

        @settings(
            max_examples=EXAMPLE_COUNT,
            deadline=None,
            # An example leaves its traces in the servers, so it could not be made smaller anyway.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        )
        @given(frames=st.lists(requests(), min_size=1, max_size=12))
        def attack(frames: list[bytes]) -> None:
            runner.run(asyncio.wait_for(scene.attack(frames), EXAMPLE_DEADLINE_S))
            assert not unexpected(caplog)

        attack()
        runner.run(scene.serve_the_good())
        parts = scene.broker.context
        assert "T" in parts.topics, "not one of the sends got through"
        assert parts.held.count == 0
        assert [len(server.connections) for server in scene.servers] == [1, 1]
