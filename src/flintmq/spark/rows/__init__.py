"""Columns, filters and rows of the tables."""

__all__ = [
    "bodies",
    "columns",
    "conditions",
    "row_batches",
    "row_filter",
]
