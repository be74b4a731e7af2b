"""The sink: rows to messages, sent so that a repeated batch can be recognised."""

__all__ = [
    "sink_options",
    "writer",
]
