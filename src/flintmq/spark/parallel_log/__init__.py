"""The log read in ranges that tasks share, joined to what a serial scan meets."""

__all__ = [
    "index_probe",
    "range_planning",
    "range_walk",
    "spool",
    "unit_replay",
]
