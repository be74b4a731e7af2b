"""What servers show of themselves: the metrics of their connections, and the endpoint for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.metrics.families import MILLISECONDS, FamilyKind, FamilyMaker
from flintmq.remoting.server import allow_reuse, bind
from flintmq.settings.metrics_settings import MetricsExporter, MetricsSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flintmq.metrics.families import Family, FamilySource, FamilySteps
    from flintmq.metrics.metrics_endpoint import MetricsEndpoint
    from flintmq.metrics.readiness import ReadinessCheck
    from flintmq.remoting.request_latencies import RequestLatencies
    from flintmq.remoting.server import RemotingServer


@asynccontextmanager
async def run_metrics(
    settings: MetricsSettings,
    sources: Sequence[FamilySource],
    *,
    labels: Mapping[str, str],
    checks: Mapping[str, ReadinessCheck],
) -> AsyncIterator[MetricsEndpoint | None]:
    """Show metrics and health while the context lasts, if the settings say so; yield where.

    ``labels`` are those that every series of the server has.
    """
    if settings.metrics_exporter is MetricsExporter.DISABLE:
        yield None
        return
    # Nobody else has to load what writes metrics.
    from flintmq.metrics import exposition
    from flintmq.metrics.metrics_endpoint import Exposed, MetricsEndpoint

    maker = FamilyMaker(labels, series_max=settings.metrics_series_max)
    shown = Exposed(exposition.exposition, maker, sources, checks)
    bound = bind(settings.metrics_host, settings.metrics_port)
    async with MetricsEndpoint.listen(bound, shown) as endpoint:
        allow_reuse(bound)
        yield endpoint


def server_source(server: RemotingServer) -> FamilySource:
    """Return what reads the metrics of a server's connections."""

    def read(make: FamilyMaker) -> FamilySteps:
        gauge, counter = FamilyKind.GAUGE, FamilyKind.COUNTER
        yield make.one(
            gauge, "flintmq_connections", "Connections of peers.", len(server.connections)
        )
        yield make.one(
            gauge,
            "flintmq_connections_waiting",
            "Connections that have not said yet whether they speak TLS.",
            server.waiting_count,
        )
        refused = make.counter(
            "flintmq_refused_total", "What was refused because there was too much.", ["reason"]
        )
        for reason, count in server.refused.by_reason().items():
            refused.add(count, reason)
        yield refused
        rejected = make.counter(
            "flintmq_frames_rejected_total",
            "Connections closed for what their peers sent or left unread.",
            ["reason"],
        )
        for reason, count in server.rejected_counts.items():
            rejected.add(count, reason)
        yield rejected
        unread = server.unread_answers
        if unread is not None:
            name = "flintmq_unread_answer_bytes"
            yield make.one(gauge, name, "Answers that peers have not read.", unread.total_size)
            yield make.one(
                counter,
                "flintmq_unread_answer_drops_total",
                "Connections closed because all unread answers were too many bytes.",
                unread.dropped_count,
            )
        if server.requests.latencies is not None:
            yield _latency_family(server.requests.latencies, make)
        if server.turns is not None:
            yield make.one(
                counter,
                "flintmq_turns_postponed_total",
                "Times that work waited for a later turn of the event loop.",
                server.turns.postponed_count,
            )

    return read


def _latency_family(latencies: RequestLatencies, make: FamilyMaker) -> Family:
    """Return how long requests took, with the labels of RocketMQ 5."""
    family = make.histogram(
        "rocketmq_rpc_latency",
        "Milliseconds from the turn that brought a request until it was answered.",
        ["protocol_type", "request_code", "response_code", "is_long_polling"],
        unit=MILLISECONDS,
    )
    for kind, histogram in latencies:
        family.add_histogram(
            histogram,
            "remoting",
            _name_of(kind.code, RequestCode),
            _name_of(kind.answer_code, ResponseCode),
            "true" if kind.is_long_polling else "false",
        )
    return family


def _name_of(code: int, names: type[RequestCode] | type[ResponseCode]) -> str:
    """Return a code as RocketMQ's labels have it; a peer may ask for what nobody knows."""
    try:
        return names(code).name.lower()
    except ValueError:
        return "unknown"
