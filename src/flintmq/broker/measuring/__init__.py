"""What a broker shows by HTTP: its metrics, by the names of RocketMQ 5 and of its exporter."""

__all__ = [
    "exposed_broker",
]
