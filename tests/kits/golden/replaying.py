"""Recorded conversations, spoken again with our own servers in the place of Java's.

The lines are taken in the order of the recording.  What a client sent is sent; what a server
said is waited for and compared.  Connections live as long as the replay, as they did then.
"""

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from flintmq.broker import Broker, read_settings, run_broker
from flintmq.broker.transactions.transaction_check import TransactionCheck
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.format.wire.signature import ACCESS_KEY, SIGNATURE, signature_of
from flintmq.namesrv import NamesrvConfig, run_namesrv
from tests.kits.golden.recorded_frames import FRAMES, Recorded, conversation
from tests.kits.golden.replay_meaning import OFFSET_ID_LENGTH, differences, meaning, places
from tests.kits.golden.replay_peer import ANSWER_TIMEOUT_S, LeapingClock, Peer

SLOW_CODES: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    }
)
"""Requests whose answer waits for a message, or for another client."""
HELD_MS: Final = 1
"""How long a pull is held that was answered without a message in the end.

Java looks every five seconds whether something came that a held pull does not want; here such a
pull is sent again when its answer is looked at.
"""
EMPTY_HANDED: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
_CAME_LATER: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
CHECK_LEAP_MS: Final = 10_000
"""More than the time-out of a transaction."""
_RUN_TIME: Final = re.compile(r"17947\d{8}")
PLACE_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    RequestCode.END_TRANSACTION: ("commitLogOffset",),
    RequestCode.CONSUMER_SEND_MSG_BACK: ("offset",),
    RequestCode.VIEW_MESSAGE_BY_ID: ("offset",),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ("msgId",),
}
"""Fields of requests that name a place in the log."""
UNRECORDED_TOPICS: Final = {"golden-sql": 2, "golden-tx": 2, "golden-retry": 1, "golden-ordered": 2}
SETTINGS: Final = {
    "listenPort": "0",
    "brokerName": "golden-a",
    "brokerClusterName": "FlintGolden",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "transactionTimeOut": "2000",
    "enablePropertyFilter": "true",
    # The replay runs the checks itself.
    "transactionCheckInterval": "1000000000",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One value that our server said otherwise."""

    conversation: str
    sequence: int
    code: int
    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        place = f"{self.conversation}:{self.sequence} ({self.code}) {self.path}"
        return f"{place}: ours {self.ours!r}, recorded {self.theirs!r}"


class Replay:
    """Our servers and the connections of the recorded clients."""

    def __init__(
        self,
        broker: Broker,
        namesrv_port: int,
        clock: LeapingClock,
        notation: str,
        names: Sequence[str],
    ) -> None:
        self._broker = broker
        self.ports = {"namesrv": namesrv_port, "broker": broker.port}
        """Where connections that are made from now on lead."""
        self._clock = clock
        self._notation = notation
        self._peers: dict[int, Peer] = {}
        self._fates = _fates(notation, names)
        self._sent: dict[tuple[int, int], Command] = {}
        self._check = TransactionCheck(broker.context) if "transaction" in names else None
        self._places: dict[int, int] = {}
        """Where a message lay in the recorded log → where it lies in ours."""
        self.compared = 0
        self.secrets: dict[str, str] = {}
        """The secret keys of the recorded accounts by access key, for requests that are changed."""

    async def play(self, name: str) -> list[Difference]:
        """Replay one conversation and return what was said otherwise."""
        found: list[Difference] = []
        recorded_frames = conversation(f"{self._notation}/{name}")
        self._let_time_pass(_time(recorded_frames))
        for recorded in recorded_frames:
            source, _, target = recorded.line["dir"].partition("->")
            if source == "client":
                await self._speak(recorded, target)
            elif target == "client":
                line, code = recorded.line, recorded.line.get("requestCode", recorded.line["code"])
                try:
                    heard = await self._listen(recorded, source)
                except TimeoutError:
                    heard = [("", "nothing", line["type"])]
                found += [Difference(name, line["seq"], code, *one) for one in heard]
        return found

    def _let_time_pass(self, recorded_ms: int) -> None:
        """Go on to the time of a recording; what is due until then happens first."""
        self._clock.leap_to(recorded_ms)
        self._broker.context.store.schedule.deliver_due()
        if self._check is not None:
            self._check.run()
        self._broker.context.dispatch()

    async def prepare(self, topics: Mapping[str, int]) -> None:
        """Make the topics that were there, but whose making was not recorded."""
        peer = await self.peer(0, "broker")
        for number, (topic, count) in enumerate(topics.items()):
            header = CreateTopicRequest(
                topic=topic, read_queue_nums=count, write_queue_nums=count, perm=6
            )
            request = Command(
                code=RequestCode.UPDATE_AND_CREATE_TOPIC, opaque=number, ext_fields=header.encode()
            )
            peer.send(request)
            assert (await peer.answer(number)).code == ResponseCode.SUCCESS

    async def close(self) -> None:
        for peer in self._peers.values():
            await peer.close()

    async def peer(self, connection: int, server: str = "broker") -> Peer:
        """Return a connection by its number in the recording."""
        if connection not in self._peers:
            port = self.ports[server]
            self._peers[connection] = Peer(*await asyncio.open_connection("127.0.0.1", port))
        return self._peers[connection]

    async def _speak(self, recorded: Recorded, server: str) -> None:
        peer, command = await self.peer(recorded.line["conn"], server), recorded.command
        if command.is_response:
            peer.send(dataclasses.replace(command, opaque=peer.opaques[command.opaque]))
            return
        fate = self._fates.get((recorded.line["conn"], command.opaque))
        if command.code == RequestCode.PULL_MESSAGE and fate in EMPTY_HANDED:
            fields = dict(command.ext_fields) | {"suspendTimeoutMillis": str(HELD_MS)}
            command = dataclasses.replace(command, ext_fields=fields)
        command = self._signed(self._placed(command), recorded.command)
        peer.send(command)
        self._sent[recorded.line["conn"], command.opaque] = command
        if command.is_one_way:
            await peer.barrier()
        elif command.code not in SLOW_CODES and fate is not None:
            # Requests of several connections must be handled in the order of the recording.
            answer = await peer.answer(command.opaque)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while _comes_too_early(command, answer, fate):
                    answer = await peer.again(command)

    def _signed(self, command: Command, recorded: Command) -> Command:
        """Return a request that was changed with a signature as good as the recorded one."""
        secret = self.secrets.get(recorded.ext_fields.get(ACCESS_KEY, ""))
        if secret is None or command.ext_fields == recorded.ext_fields:
            return command
        right = signature_of(recorded.ext_fields, recorded.body, secret.encode()).decode()
        if recorded.ext_fields.get(SIGNATURE) != right:
            return command
        signature = signature_of(command.ext_fields, command.body, secret.encode()).decode()
        fields = dict(command.ext_fields) | {SIGNATURE: signature}
        return dataclasses.replace(command, ext_fields=fields)

    def _placed(self, command: Command) -> Command:
        """Return a request with the places of our log in it."""
        fields = dict(command.ext_fields)
        for name in PLACE_FIELDS.get(command.code, ()):
            text = fields[name]
            if len(text) == OFFSET_ID_LENGTH:
                place = int(text[-16:], 16)
                fields[name] = f"{text[:-16]}{self._places.get(place, place):016X}"
            else:
                fields[name] = str(self._places.get(int(text), int(text)))
        if command.code == RequestCode.QUERY_DATA_VERSION:
            fields["brokerAddr"] = self._broker.address
        return dataclasses.replace(command, ext_fields=fields)

    async def _listen(self, recorded: Recorded, server: str) -> list[tuple[str, Any, Any]]:
        peer = await self.peer(recorded.line["conn"], server)
        theirs = recorded.command
        if theirs.is_response:
            code = recorded.line["requestCode"]
            if theirs.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
                # A pull that overtook, inside the broker, the heartbeat sent before it.
                return []
            ours = await peer.answer(theirs.opaque)
            if code == RequestCode.PULL_MESSAGE and (ours.code, theirs.code) == _CAME_LATER:
                ours = await peer.again(self._sent[recorded.line["conn"], theirs.opaque])
        else:
            code = theirs.code
            if code == RequestCode.CHECK_TRANSACTION_STATE and not peer.is_asked(code):
                assert self._check is not None
                self._clock.leap_to(self._clock.now_ms() + CHECK_LEAP_MS)
                self._check.run()
            ours = await peer.request(code)
            peer.opaques[theirs.opaque] = ours.opaque
        if _is_there_sooner(ours, theirs, code):
            return []
        self.compared += 1
        self._places |= zip(places(theirs, code), places(ours, code), strict=False)
        return list(differences(meaning(ours, code), meaning(theirs, code)))


def _time(frames: tuple[Recorded, ...]) -> int:
    """Return the earliest time of the recorded run that stands in a header; 0 without one."""
    values = (value for one in frames for value in one.ext_fields.values())
    return min((int(value) for value in values if _RUN_TIME.fullmatch(value)), default=0)


def _is_there_sooner(ours: Command, theirs: Command, request_code: int) -> bool:
    """Whether a consumer asked for its retry topic while the Java broker was registering it."""
    return (
        request_code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        and theirs.code == ResponseCode.TOPIC_NOT_EXIST
        and "%RETRY%" in (theirs.remark or "")
        and ours.code == ResponseCode.SUCCESS
    )


def _comes_too_early(command: Command, answer: Command, fate: int) -> bool:
    """Whether a route is asked for that the broker is just registering."""
    return (
        command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        and answer.code == ResponseCode.TOPIC_NOT_EXIST
        and fate == ResponseCode.SUCCESS
    )


def _fates(notation: str, names: Sequence[str]) -> dict[tuple[int, int], int]:
    """Return for connection and opaque the code with which a request was answered."""
    fates = {}
    for name in names:
        for recorded in conversation(f"{notation}/{name}"):
            line = recorded.line
            if line["type"] == "response" and line["dir"].endswith("->client"):
                fates[line["conn"], line["opaque"]] = line["code"]
    return fates


@contextlib.asynccontextmanager
async def replay(
    root: Path,
    notation: str,
    names: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Replay]:
    """Run a name server and a broker, and yield what speaks with them.

    ``names`` are the conversations of one run of a Java broker, in their order; ``settings`` are
    those in which that broker differed from the others.
    """
    names = MAIN_RUN if names is None else names
    async with contextlib.AsyncExitStack() as stack:
        namesrv_config = NamesrvConfig(
            listen_port=0,
            bind_address="127.0.0.1",
            kv_config_path=root / "kvConfig.json",
            config_store_path=root / "namesrv.properties",
        )
        namesrv = await stack.enter_async_context(run_namesrv(namesrv_config))
        properties = SETTINGS | {
            "namesrvAddr": namesrv.address,
            "storePathRootDir": str(root / "store"),
            **(settings or {}),
        }
        times = (_time(conversation(f"{notation}/{name}")) for name in names)
        clock = LeapingClock(next(filter(None, times)))
        broker = await stack.enter_async_context(
            run_broker(*read_settings(properties), clock=clock)
        )
        namesrv_port = int(namesrv.address.rpartition(":")[2])
        playing = Replay(broker, namesrv_port, clock, notation, names)
        stack.push_async_callback(playing.close)
        yield playing


def _main_run() -> Iterator[str]:
    """Yield the conversations of the longest run in the order in which they were held.

    Connections were numbered as they came; those that stayed open behind others do not count.
    """
    others = frozenset({"register-broker", "unregister-broker"})
    starts = {}
    for path in sorted((FRAMES / "json").glob("*.jsonl")):
        name = path.stem
        if name in others or name in OTHER_RUNS or name.startswith(OTHER_RUN_PREFIXES):
            continue
        own = {
            recorded.line["conn"]
            for recorded in conversation(f"json/{name}")
            if "client" in recorded.line["dir"]
        }
        starts[name] = min(own - ONLINE_CONNECTIONS, default=min(own))
    # The clients that were online all the time left in the end.
    starts["offline"] = max(starts.values()) + 1
    yield from sorted(starts, key=lambda name: starts[name])


ONLINE_CONNECTIONS: Final = frozenset({60, 61, 62, 63})
"""The consumer and the producer that stayed while the tools were run."""
OTHER_RUNS: Final = frozenset(
    {
        "admin-getBrokerConfig",
        "admin-exportConfigs",
        "admin-exportMetrics",
        "admin-raw",
        "admin-clusterList-slave",
        "admin-topicRoute-slave",
        "vip",
        "trace",
        "ha-stream",
    }
)
OTHER_RUN_PREFIXES: Final = ("acl-", "slave-")
MAIN_RUN: Final = tuple(_main_run())
