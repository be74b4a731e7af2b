"""The brokers of an embedded cluster: a master, and slaves that follow it through proxies."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from flintmq.broker import read_settings, run_broker
from flintmq.client.errors import UsageError
from flintmq.testing.tcp_proxy import AsyncTcpProxy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flintmq.broker import Broker
    from flintmq.testing.clock import ManualClock
    from flintmq.testing.faulty_files import FaultyFiles

BROKER_HOST: Final = "127.0.0.1"
PROXY_HOST: Final = "127.0.0.2"
"""A broker behind a proxy tells its clients another address than its own."""

SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "maxMessageSize": str(2 << 20),
}


class EmbeddedBrokers:
    """Starts and stops the brokers of one group."""

    def __init__(
        self,
        root: Path,
        namesrv: str,
        settings: Mapping[str, str],
        *,
        clock: ManualClock | None,
        files: FaultyFiles,
        proxied: bool,
    ) -> None:
        self._root = root
        self._namesrv = namesrv
        self._settings = settings
        self._clock = clock
        self._files = files
        self._is_proxied = proxied
        self._stack = AsyncExitStack()
        self._master_stack = AsyncExitStack()
        self._port = 0
        self.master: Broker | None = None
        self.slaves: list[Broker] = []
        self.proxy: AsyncTcpProxy | None = None
        """Between clients and the master."""
        self.stream: AsyncTcpProxy | None = None
        """Between the slaves and the master."""

    def _properties(self, **changes: str) -> dict[str, str]:
        return {
            **SMALL_FILES,
            "brokerName": "broker-a",
            "listenPort": "0",
            "namesrvAddr": self._namesrv,
            # Tests end before machine code is loaded.
            "machineCode": "false",
            # Clients are in the same process.
            "activeWaitMicros": "0",
            "bindAddress": BROKER_HOST,
            **self._settings,
            **changes,
        }

    async def start_master(self) -> Broker:
        """Start the master, on the port that it had before."""
        if self.master is not None:
            raise UsageError("the master is running")
        properties = self._properties(
            storePathRootDir=self._settings.get("storePathRootDir", str(self._root / "store")),
            brokerIP1=self._settings.get(
                "brokerIP1", PROXY_HOST if self._is_proxied else BROKER_HOST
            ),
        )
        if self._port:
            properties["listenPort"] = str(self._port)
        config, store = read_settings(properties)
        self.master = broker = await self._master_stack.enter_async_context(
            run_broker(config, store, clock=self._clock, files=self._files)
        )
        self._port = broker.port
        if self._is_proxied and self.proxy is None:
            self.proxy = await self._stack.enter_async_context(
                AsyncTcpProxy(f"{BROKER_HOST}:{broker.port}", listen=broker.address)
            )
        return broker

    async def kill_master(self) -> None:
        """Cut the master off from everybody, and end it."""
        if self.master is None:
            raise UsageError("the master is not running")
        for connection in list(self.master.server.connections):
            connection.abort()
        self.master = None
        await self._master_stack.aclose()

    async def start_slaves(self, count: int) -> None:
        """Start slaves of the master, which has to be running."""
        assert self.master is not None
        port = self.master.context.store.config.ha_listen_port
        self.stream = await self._stack.enter_async_context(AsyncTcpProxy(f"{BROKER_HOST}:{port}"))
        for number in range(1, count + 1):
            config, store = read_settings(
                self._properties(
                    brokerId=str(number),
                    brokerRole="SLAVE",
                    haMasterAddress=self.stream.address,
                    storePathRootDir=str(self._root / f"slave-{number}"),
                    brokerIP1=BROKER_HOST,
                )
            )
            self.slaves.append(
                await self._stack.enter_async_context(run_broker(config, store, clock=self._clock))
            )

    async def stop(self) -> None:
        """Stop all: slaves first, so that none of them misses its master."""
        self.master = None
        try:
            await self._stack.aclose()
        finally:
            await self._master_stack.aclose()
