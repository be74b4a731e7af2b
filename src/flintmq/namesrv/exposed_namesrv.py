"""The HTTP endpoint of a name server: its metrics, and that it is ready."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flintmq.metrics.families import FamilyKind
from flintmq.remoting.server_metrics import run_metrics, server_source

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from flintmq.access.access_control import AccessControl
    from flintmq.metrics.families import FamilyMaker, FamilySource, FamilySteps
    from flintmq.metrics.metrics_endpoint import MetricsEndpoint
    from flintmq.namesrv.config import NamesrvConfig
    from flintmq.namesrv.routes import RouteTable
    from flintmq.remoting import RemotingServer


def expose_namesrv(
    config: NamesrvConfig, routes: RouteTable, server: RemotingServer, access: AccessControl | None
) -> AbstractAsyncContextManager[MetricsEndpoint | None]:
    """Show metrics and health of a name server while the context lasts, if its settings say so."""
    node = f"{config.bind_address}:{config.listen_port}"
    return run_metrics(
        config,
        [_route_source(routes, access), server_source(server)],
        labels={"node_type": "nameserver", "node_id": node},
        # It keeps nothing that would have to be recovered: who can connect is served.
        checks={"listening": lambda: "" if server.ports else "no port is open"},
    )


def _route_source(routes: RouteTable, access: AccessControl | None) -> FamilySource:
    def read(make: FamilyMaker) -> FamilySteps:
        count = len(routes.topics())
        yield make.one(FamilyKind.GAUGE, "flintmq_namesrv_topics", "Topics with a route.", count)
        brokers = make.gauge(
            "flintmq_namesrv_brokers", "Brokers that are registered.", ["cluster", "role"]
        )
        found: Counter[tuple[str, str]] = Counter()
        for broker in routes.cluster_info().brokers.values():
            for broker_id in broker.addresses:
                found[broker.cluster, "slave" if broker_id else "master"] += 1
        for labels, broker_count in found.items():
            brokers.add(broker_count, *labels)
        yield brokers
        denied = make.counter(
            "flintmq_acl_denied_total", "Requests that access control denied.", ["reason"]
        )
        if access is not None:
            for reason, denied_count in access.denied_counts().items():
                denied.add(denied_count, reason)
        yield denied

    return read
