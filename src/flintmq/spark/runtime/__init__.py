"""Spark for one job: its session, its Java, this package for its executors, its failures."""

__all__ = [
    "failures",
    "java_runtime",
    "session_settings",
    "session_types",
    "spark_session",
    "stage_names",
]
