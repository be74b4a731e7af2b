"""The HTTP endpoint of a broker: which metrics it has, and when the broker is ready.

It is there before the store is: a start may take long, and whoever waits for it is told how far it
has come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from flintmq.settings.metrics_settings import MetricsExporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.broker.broker_registrar import BrokerRegistrar
    from flintmq.broker.config import BrokerConfig
    from flintmq.broker.context import BrokerContext
    from flintmq.metrics.families import FamilyMaker, FamilySource, FamilySteps
    from flintmq.metrics.metrics_endpoint import MetricsEndpoint
    from flintmq.metrics.readiness import ReadinessCheck
    from flintmq.remoting import RemotingServer
    from flintmq.store.recovery.recovery_progress import RecoveryProgress


class ExposedBroker:
    """What a broker shows by HTTP, if its settings say so.  Use `expose_broker`."""

    def __init__(self, endpoint: MetricsEndpoint | None) -> None:
        self._endpoint = endpoint

    @property
    def address(self) -> str | None:
        """Host and port; None: nothing is shown."""
        return None if self._endpoint is None else self._endpoint.address

    @asynccontextmanager
    async def showing(
        self, context: BrokerContext, server: RemotingServer, registrar: BrokerRegistrar
    ) -> AsyncIterator[None]:
        """Show a broker that serves while the context lasts; afterwards that it is stopping."""
        endpoint = self._endpoint
        if endpoint is None:
            yield
            return
        at_start = endpoint.exposed
        endpoint.show(
            replace(
                at_start,
                sources=[_start_source(is_starting=False), *_sources(context, server)],
                checks=_checks(context, registrar),
            )
        )
        try:
            yield
        finally:
            stopping = {"broker": lambda: "it is stopping"}
            endpoint.show(replace(at_start, sources=[], checks=stopping))
            await endpoint.end_answers()


@asynccontextmanager
async def expose_broker(
    config: BrokerConfig, progress: RecoveryProgress
) -> AsyncIterator[ExposedBroker]:
    """Show metrics and health while the context lasts: at first that the store is not open yet."""
    if config.metrics_exporter is MetricsExporter.DISABLE:
        yield ExposedBroker(None)
        return
    from flintmq.remoting.server_metrics import run_metrics

    async with run_metrics(
        config,
        [_start_source(is_starting=True)],
        labels={"cluster": config.cluster, "node_type": "broker", "node_id": config.name},
        checks={"store": lambda: progress.text},
    ) as endpoint:
        yield ExposedBroker(endpoint)


def _start_source(*, is_starting: bool) -> FamilySource:
    def read(make: FamilyMaker) -> FamilySteps:
        from flintmq.metrics.families import FamilyKind

        text = "Whether the store is being opened or recovered: 1, else 0."
        yield make.one(FamilyKind.GAUGE, "flintmq_store_starting", text, is_starting)

    return read


def _sources(context: BrokerContext, server: RemotingServer) -> list[FamilySource]:
    # Only a broker that shows metrics loads what reads them.
    from flintmq.broker.measuring.lag_metrics import client_source, lag_source
    from flintmq.broker.measuring.runtime_metrics import broker_source, exporter_source
    from flintmq.broker.measuring.size_metrics import size_source
    from flintmq.broker.measuring.store_metrics import store_source
    from flintmq.broker.measuring.topic_metrics import counter_source, topic_source
    from flintmq.remoting.server_metrics import server_source

    return [
        store_source(context.store),
        broker_source(context),
        server_source(server),
        counter_source(context),
        topic_source(context),
        lag_source(context),
        client_source(context),
        exporter_source(context),
        size_source(context.store),
    ]


def _checks(context: BrokerContext, registrar: BrokerRegistrar) -> Mapping[str, ReadinessCheck]:
    def store() -> str:
        return "; ".join(context.store.flags.reasons())

    def replication() -> str:
        if context.replica is None:
            return "it has not begun to follow its master" if context.is_slave else ""
        info = context.replica.runtime_info()
        if info["haState"] == "streaming":
            return ""
        return info["haTrouble"] or "it does not follow a master"

    def dispatch() -> str:
        blocked = context.store.dispatcher.blocked
        return "" if blocked is None else str(blocked)

    return {
        "store": store,
        "dispatch": dispatch,
        "registration": lambda: registrar.trouble,
        "replication": replication,
    }
