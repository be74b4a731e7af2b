"""A running name server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from flintmq.model.value_class import Value, value_class
from flintmq.namesrv.config import EDITABLE, SETTINGS, NamesrvConfig
from flintmq.namesrv.kv_config import KvConfig
from flintmq.namesrv.route_processors import NamesrvProcessors, request_table
from flintmq.namesrv.routes import RouteTable
from flintmq.remoting import RemotingServer, bind
from flintmq.remoting.request_table import admit_all
from flintmq.remoting.server_limits import server_limits
from flintmq.remoting.tls_setup import server_tls
from flintmq.settings.access_settings import access_file
from flintmq.settings.live_config import LiveConfig
from flintmq.settings.log_levels import LogLevels
from flintmq.settings.metrics_settings import MetricsExporter

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from flintmq.access.access_control import AccessControl
    from flintmq.metrics.metrics_endpoint import MetricsEndpoint
    from flintmq.remoting import Connection

logger = logging.getLogger(__name__)


def system_now_ms() -> int:
    """Return the time of the machine."""
    return time.time_ns() // 1_000_000


@value_class
class Namesrv(Value):
    """A name server that accepts connections."""

    host: str
    port: int
    routes: RouteTable
    server: RemotingServer
    metrics_address: str | None
    """Where its metrics are; None: nowhere."""

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{self.host}:{self.port}"


@asynccontextmanager
async def run_namesrv(
    config: NamesrvConfig, *, now_ms: Callable[[], int] = system_now_ms
) -> AsyncIterator[Namesrv]:
    """Start a name server and yield it once it accepts connections."""
    tls = server_tls(config)
    listener = bind(config.bind_address, config.listen_port)
    # Port 0 asks for a free one; who asks for the settings is told which it is.
    config = replace(config, listen_port=listener.getsockname()[1])
    routes = RouteTable()
    pairs = KvConfig(config.kv_config_path)
    pairs.load()

    def lost(connection: Connection) -> None:
        for address in routes.lost(connection):
            logger.warning("broker gone with its connection: at=%s", address)

    async with AsyncExitStack() as stack:
        levels = stack.enter_context(LogLevels.kept())
        live = LiveConfig(
            config,
            SETTINGS,
            editable=EDITABLE,
            overlay=config.config_store_path,
            on_change=lambda config, _: levels.apply(config.log_levels),
        )
        levels.apply(config.log_levels)
        live.load()
        processors = NamesrvProcessors(routes, pairs, live, now_ms)
        access = await stack.enter_async_context(_access_control(config, now_ms))
        server = await stack.enter_async_context(
            RemotingServer.listen(
                request_table(processors, admit=admit_all if access is None else access.admit),
                sockets=[listener],
                limits=server_limits(config),
                on_close=lost,
                tls=tls,
            )
        )
        shown = await stack.enter_async_context(_exposed(config, routes, server, access))
        metrics = None if shown is None else shown.address
        scanner = asyncio.create_task(_scan_forever(routes, config, now_ms), name="broker scan")
        logger.info("name server ready: host=%s port=%d", config.bind_address, server.ports[0])
        try:
            yield Namesrv(
                host=config.bind_address,
                port=server.ports[0],
                routes=routes,
                server=server,
                metrics_address=metrics,
            )
        finally:
            scanner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await scanner


def _exposed(
    config: NamesrvConfig, routes: RouteTable, server: RemotingServer, access: AccessControl | None
) -> AbstractAsyncContextManager[MetricsEndpoint | None]:
    """Show metrics and health while the context lasts, if the settings say so."""
    if config.metrics_exporter is MetricsExporter.DISABLE:
        return contextlib.nullcontext()
    # Nobody else has to load what reads metrics.
    from flintmq.namesrv.exposed_namesrv import expose_namesrv

    return expose_namesrv(config, routes, server, access)


@asynccontextmanager
async def _access_control(
    config: NamesrvConfig, now_ms: Callable[[], int]
) -> AsyncIterator[AccessControl | None]:
    if not config.acl_enable:
        yield None
        return
    # Who has no access files needs no YAML either.
    from flintmq.access.access_start import run_access_control

    async with run_access_control(
        access_file(config.acl_file, config.rocketmq_home),
        white_list_grants=config.acl_white_list_grants,
        reload_interval_ms=config.acl_reload_interval_ms,
        now_ms=now_ms,
    ) as access:
        yield access


async def _scan_forever(
    routes: RouteTable, config: NamesrvConfig, now_ms: Callable[[], int]
) -> None:
    while True:
        await asyncio.sleep(config.scan_interval_ms / 1000)
        for address, connection in routes.expire(now_ms(), config.broker_timeout_ms):
            logger.warning("broker silent for too long: at=%s", address)
            connection.close()
