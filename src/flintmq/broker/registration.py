"""Telling name servers that this broker is there, and which topics it has.

Every name server has a task of its own, so one that is down delays nobody: neither the others nor
a send that makes a topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.errors import FlintError
from flintmq.format.bodies.dialect import Members, loads_body
from flintmq.format.bodies.registration import encode_registration
from flintmq.format.codes import RequestCode, ResponseCode
from flintmq.format.headers.namesrv import RegisterBrokerRequest, UnregisterBrokerRequest
from flintmq.model.topic_config import Perm
from flintmq.remoting import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flintmq.broker.config import BrokerConfig
    from flintmq.broker.topics import TopicTable
    from flintmq.model.topic_config import TopicConfig

logger = logging.getLogger(__name__)

PERIOD_MS_MIN: Final = 10_000
PERIOD_MS_MAX: Final = 60_000
UNREGISTER_TIMEOUT_MS: Final = 3000
_CRC_MASK: Final = 0x7FFFFFFF


class Registration:
    """Keeps a broker registered with all its name servers."""

    def __init__(
        self,
        topics: TopicTable,
        *,
        config: Callable[[], BrokerConfig],
        address: str,
        ha_address: str,
    ) -> None:
        self._topics = topics
        self._config = config
        self._address = address
        self._ha_address = ha_address
        self._client = RemotingClient()
        self._addresses = config().namesrv_addresses
        self._is_due = {one: asyncio.Event() for one in self._addresses}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_failing: set[str] = set()

    async def start(self) -> None:
        """Register everywhere for the first time, then go on in the background."""
        await asyncio.gather(*map(self._register, self._addresses))
        self._tasks = [
            asyncio.create_task(self._register_forever(one), name=f"register with {one}")
            for one in self._addresses
        ]

    def trigger(self) -> None:
        """Register again soon: something has changed."""
        for due in self._is_due.values():
            due.set()

    async def _register_forever(self, address: str) -> None:
        due = self._is_due[address]
        while True:
            period = min(max(self._config().register_period_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period / 1000):
                    await due.wait()
            due.clear()
            await self._register(address)

    def _shown_topics(self) -> Iterable[TopicConfig]:
        permission = self._config().permission
        if permission & Perm.READ_WRITE == Perm.READ_WRITE:
            return self._topics
        return [replace(topic, perm=permission) for topic in self._topics]

    async def _register(self, namesrv: str) -> None:
        config = self._config()
        body = encode_registration(
            self._shown_topics(), self._topics.version, compressed=config.compressed_register
        )
        header = RegisterBrokerRequest(
            broker_name=config.name,
            broker_addr=self._address,
            cluster_name=config.cluster,
            ha_server_addr=self._ha_address,
            broker_id=config.broker_id,
            compressed=config.compressed_register,
            body_crc32=zlib.crc32(body) & _CRC_MASK,
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
            if answer.body:
                table = Members(loads_body(answer.body), "the order configuration").table("table")
                self._topics.set_order(frozenset(map(str, table)))
        except FlintError as error:
            # Said once; the next success says that it is over.
            if namesrv not in self._is_failing:
                self._is_failing.add(namesrv)
                logger.warning("not registered: namesrv=%s reason=%s", namesrv, error)
            return
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

    async def stop(self) -> None:
        """Unregister everywhere."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(self._unregister, self._addresses))
        await self._client.close()


class RegistrationRefusedError(FlintError):
    """A name server answered, but would not have the broker."""
