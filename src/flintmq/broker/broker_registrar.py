"""Telling name servers that this broker is there, and which topics it has.

Every name server has a task of its own, so one that is down delays nobody: neither the others nor
a send that makes a topic.  The topics are encoded when they have changed, in slices, and not every
time that a registration is due.

As in RocketMQ, a topic that is new or changed is registered alone, with the version of the table:
else each new topic of a broker with thousands would have all of them sent, read and compared.
RocketMQ's broker does so without a look at the name server, and one that has just been started has
then nothing else of it.  Here it is asked first whether it has the table as it was before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.errors import FlintError
from flintmq.format.java import crc31
from flintmq.format.wire.bodies.dialect import Members, dumps_body, loads_body
from flintmq.format.wire.bodies.registration import encode_in_steps, encode_registration
from flintmq.format.wire.bodies.topics import version_from_json, version_to_json
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.namesrv import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from flintmq.model.topic_config import Perm
from flintmq.remoting import Limits, RemotingClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.config import BrokerConfig
    from flintmq.broker.tables.topic_table import TopicTable
    from flintmq.format.wire.command import Command
    from flintmq.model.data_version import DataVersion
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.tls_files import WatchedContext

logger = logging.getLogger(__name__)

PERIOD_MS_MIN: Final = 10_000
PERIOD_MS_MAX: Final = 60_000
LOOK_FOR_MASTER_MS: Final = 2000
"""How often a slave registers that follows no master: one may be there by now."""
UNREGISTER_TIMEOUT_MS: Final = 3000
WHOLE_TABLE_MAX: Final = 256
"""So many topics are always registered together."""


class _Body(NamedTuple):
    """What is registered, and the state of the table that it tells."""

    content: bytes
    version: DataVersion
    change_number: int


class _Taken(NamedTuple):
    """What a name server has taken last, and over which connection."""

    connection: object | None
    version: DataVersion
    change_number: int


class BrokerRegistrar:
    """Keeps a broker registered with all its name servers."""

    def __init__(
        self,
        topics: TopicTable,
        *,
        config: Callable[[], BrokerConfig],
        address: str,
        ha_address: str,
        turns: FairTurns,
        prepare: Callable[[Command], None] | None = None,
        tls: WatchedContext | None = None,
    ) -> None:
        self._topics = topics
        self._config = config
        self._address = address
        self._ha_address = ha_address
        self._turns = turns
        self._encoded: tuple[object, _Body] | None = None
        """What the last body of all topics was made of, and the body."""
        self._encoding = asyncio.Lock()
        self._client = RemotingClient(
            prepare=prepare,
            tls=tls,
            limits=Limits(
                connect_timeout_ms=config().connect_timeout_ms,
                idle_timeout_ms=config().client_idle_timeout_s * 1000,
            ),
        )
        self._is_due: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._is_failing: set[str] = set()
        self._is_registered: set[str] = set()
        """Name servers that have taken the last registration."""
        self.master_told: Callable[[str | None, str | None], bool] | None = None
        """On a slave: is told the addresses of its master, and tells whether it follows it."""
        self._looks_for_master = False
        self._taken: dict[str, _Taken] = {}
        """What each name server has taken last; none that has refused something since."""

    async def start(self) -> None:
        """Register everywhere for the first time, then go on in the background."""
        addresses = self._config().namesrv_addresses
        await asyncio.gather(*(self._register(one, is_forced=True) for one in addresses))
        self._follow_settings()

    def trigger(self) -> None:
        """Have the broker registered again soon, because something has changed."""
        self._follow_settings()
        for due in self._is_due.values():
            due.set()

    def _follow_settings(self) -> None:
        """Go on with the name servers that the settings name now, and leave all others."""
        wanted = set() if self._is_stopped else set(self._config().namesrv_addresses)
        for address in self._tasks.keys() - wanted:
            self._tasks.pop(address).cancel()
            del self._is_due[address]
            leaving = asyncio.create_task(self._unregister(address), name=f"leave {address}")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        for address in wanted - self._tasks.keys():
            self._is_due[address] = asyncio.Event()
            self._tasks[address] = asyncio.create_task(
                self._register_forever(address), name=f"register with {address}"
            )

    async def _register_forever(self, address: str) -> None:
        due = self._is_due[address]
        while True:
            period = min(max(self._config().register_period_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)
            if self._looks_for_master:
                period = LOOK_FOR_MASTER_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period / 1000):
                    await due.wait()
            is_forced = due.is_set() or self._config().force_register
            due.clear()
            await self._register(address, is_forced=is_forced)

    async def _whole_body(self, config: BrokerConfig) -> _Body:
        """Return all topics as a registration has them."""
        permission, is_compressed = config.permission, config.compressed_register
        async with self._encoding:
            version = self._topics.version
            made_of = (version, permission, is_compressed)
            if self._encoded is not None and self._encoded[0] == made_of:
                return self._encoded[1]
            change_number = self._topics.change_number
            topics = list(self._topics)
            if permission & Perm.READ_WRITE != Perm.READ_WRITE:
                topics = [replace(topic, perm=permission) for topic in topics]
            if is_compressed:
                # Most of it is compression, which does not need the interpreter.
                body = await asyncio.to_thread(
                    encode_registration, topics, version, compressed=True
                )
            else:
                body = await self._turns.run(encode_in_steps(topics, version), "registration")
            whole = _Body(body, version, change_number)
            self._encoded = (made_of, whole)
            return whole

    async def _news_body(self, namesrv: str, config: BrokerConfig) -> _Body | None:
        """Return the topics that have changed since a name server has taken all others.

        None where all have to be registered.
        """
        topics, taken = self._topics, self._taken.get(namesrv)
        if (
            taken is None
            or taken.connection is None
            or len(topics) <= WHOLE_TABLE_MAX
            or config.permission & Perm.READ_WRITE != Perm.READ_WRITE
            or not topics.changed_since(taken.change_number)
            # Of what another process in its place has, nothing is known.
            or self._client.ready(namesrv) is not taken.connection
            or not await self._is_known(namesrv, config, taken.version)
        ):
            return None
        changed = topics.changed_since(taken.change_number)
        if (
            changed is None
            or self._client.ready(namesrv) is not taken.connection
            or self._config() != config
        ):
            return None
        if (due := self._is_due.get(namesrv)) is not None:
            due.clear()  # What has come meanwhile is among these.
        version, number = topics.version, topics.change_number
        body = encode_registration(changed, version, compressed=config.compressed_register)
        return _Body(body, version, number)

    async def _is_known(self, namesrv: str, config: BrokerConfig, version: DataVersion) -> bool:
        """Ask a name server whether it has this version of the topics."""
        header = QueryDataVersionRequest(
            broker_name=config.name,
            broker_addr=self._address,
            cluster_name=config.cluster,
            broker_id=config.broker_id,
        )
        body = dumps_body(version_to_json(version))
        code, timeout_ms = RequestCode.QUERY_DATA_VERSION, config.register_timeout_ms
        try:
            answer = await self._client.call(namesrv, code, header, body, timeout_ms=timeout_ms)
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                return False
            has_changed = QueryDataVersionResponse.decode(answer.ext_fields).changed
            return not has_changed and version_from_json(loads_body(answer.body)) == version
        except FlintError:
            return False  # The registration that follows says what is wrong.

    async def _register(self, namesrv: str, *, is_forced: bool) -> None:
        config = self._config()
        if not is_forced and await self._is_known(namesrv, config, self._topics.version):
            return
        told = await self._news_body(namesrv, config) or await self._whole_body(config)
        body = told.content
        self._taken.pop(namesrv, None)
        header = RegisterBrokerRequest(
            broker_name=config.name,
            broker_addr=self._address,
            cluster_name=config.cluster,
            ha_server_addr=self._ha_address,
            broker_id=config.broker_id,
            compressed=config.compressed_register,
            body_crc32=crc31(body),
        )
        try:
            answer = await self._client.call(
                namesrv,
                RequestCode.REGISTER_BROKER,
                header,
                body,
                timeout_ms=config.register_timeout_ms,
            )
            if answer.code != ResponseCode.SUCCESS:
                raise RegistrationRefusedError(f"code {answer.code}: {answer.remark}")
            if self.master_told is not None:
                found = RegisterBrokerResponse.decode(answer.ext_fields)
                follows = self.master_told(found.master_addr, found.ha_server_addr)
                self._looks_for_master = not follows
            elif answer.body:
                table = Members(loads_body(answer.body), "the order configuration").table("table")
                self._topics.set_order(frozenset(map(str, table)))
        except FlintError as error:
            # Said once; the next success says that it is over.
            if namesrv not in self._is_failing:
                self._is_failing.add(namesrv)
                self._is_registered.discard(namesrv)
                logger.warning("not registered: namesrv=%s reason=%s", namesrv, error)
            return
        self._is_registered.add(namesrv)
        self._taken[namesrv] = _Taken(self._client.ready(namesrv), told.version, told.change_number)
        if namesrv in self._is_failing:
            self._is_failing.discard(namesrv)
            logger.info("registered again: namesrv=%s", namesrv)

    async def _unregister(self, namesrv: str) -> None:
        config = self._config()
        header = UnregisterBrokerRequest(
            broker_name=config.name,
            broker_addr=self._address,
            cluster_name=config.cluster,
            broker_id=config.broker_id,
        )
        with contextlib.suppress(FlintError, TimeoutError):
            async with asyncio.timeout(UNREGISTER_TIMEOUT_MS / 1000):
                await self._client.call(
                    namesrv,
                    RequestCode.UNREGISTER_BROKER,
                    header,
                    timeout_ms=UNREGISTER_TIMEOUT_MS,
                )

    @property
    def trouble(self) -> str:
        """Why clients cannot find the broker through name servers; nothing if one knows it."""
        if self._is_stopped:
            return "the broker is stopping"
        wanted = self._config().namesrv_addresses
        if not wanted or self._is_registered.intersection(wanted):
            return ""
        return f"no name server has the broker: {', '.join(wanted)}"

    async def stop(self) -> None:
        """Unregister everywhere."""
        self._is_stopped = True
        self._follow_settings()
        await asyncio.gather(*self._leaving)
        await self._client.close()


class RegistrationRefusedError(FlintError):
    """A name server answered, but would not have the broker."""
