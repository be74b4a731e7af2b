"""Settings of metrics, which brokers and name servers have alike; the names are RocketMQ 5's."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final

from flintmq.model.value_class import value_class
from flintmq.settings.log_levels import LogSettings
from flintmq.settings.setting import Owner, Setting, choice, number, settings_of, text


class MetricsExporter(Enum):
    """How a server shows its metrics."""

    DISABLE = "DISABLE"
    PROM = "PROM"
    """By HTTP, as Prometheus asks for them."""


@value_class
class MetricsSettings(LogSettings):
    """Whether a server has an HTTP endpoint for metrics and health, and where."""

    metrics_exporter: MetricsExporter = field(
        default=MetricsExporter.DISABLE,
        metadata=choice("metricsExporterType", MetricsExporter, owner=Owner.FLINTMQ),
    )
    metrics_port: int = number("metricsPromExporterPort", 5557, maximum=65535, owner=Owner.FLINTMQ)
    metrics_host: str = text("metricsPromExporterHost", "127.0.0.1", owner=Owner.FLINTMQ)
    metrics_series_max: int = number(
        "metricsOtelCardinalityLimit", 10_000, minimum=1, owner=Owner.FLINTMQ
    )
    """Series of one metric; how many more there would be is a metric of its own."""


METRICS_SETTINGS: Final[Mapping[str, Setting]] = settings_of(MetricsSettings)
"""Settings of metrics and of the log."""


def metrics_at(port: int) -> dict[str, str]:
    """Return the settings, by their keys, with which a server shows metrics on a port."""
    return {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
