"""The HTTP endpoint of a broker: which metrics it has, and when the broker is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.remoting.server_metrics import run_metrics, server_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from flintmq.broker.broker_registrar import BrokerRegistrar
    from flintmq.broker.context import BrokerContext
    from flintmq.metrics.families import FamilySource
    from flintmq.metrics.readiness import ReadinessCheck
    from flintmq.remoting import RemotingServer


def expose_broker(
    context: BrokerContext, server: RemotingServer, registrar: BrokerRegistrar
) -> AbstractAsyncContextManager[str | None]:
    """Show metrics and health of a broker while the context lasts, if its settings say so."""
    config = context.config
    return run_metrics(
        config,
        _sources(context, server),
        labels={"cluster": config.cluster, "node_type": "broker", "node_id": config.name},
        checks=_checks(context, registrar),
    )


def _sources(context: BrokerContext, server: RemotingServer) -> list[FamilySource]:
    # Only a broker that shows metrics loads what reads them.
    from flintmq.broker.measuring.lag_metrics import client_source, lag_source
    from flintmq.broker.measuring.runtime_metrics import broker_source, exporter_source
    from flintmq.broker.measuring.store_metrics import store_source
    from flintmq.broker.measuring.topic_metrics import counter_source, topic_source

    return [
        store_source(context.store),
        broker_source(context),
        server_source(server),
        counter_source(context),
        topic_source(context),
        lag_source(context),
        client_source(context),
        exporter_source(context),
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
