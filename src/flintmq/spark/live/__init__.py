"""Live topics as Spark tables, streams and sinks: a running cluster, through its brokers."""

__all__ = [
    "cluster",
    "cluster_options",
    "errors",
    "fetch",
    "kafka_names",
    "live_choice",
    "live_columns",
    "live_options",
    "live_reader",
    "live_rows",
    "live_session",
    "live_stream",
    "places",
    "planning",
    "pulling",
    "queue_identity",
    "ranges",
    "repeat_mark",
    "selection",
]
