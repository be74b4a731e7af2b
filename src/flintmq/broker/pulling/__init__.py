"""Pulls: whether one may read, the fast path for those seen before, their answers."""

__all__ = [
    "offset_events",
    "pull_admission",
    "pull_fast_path",
]
