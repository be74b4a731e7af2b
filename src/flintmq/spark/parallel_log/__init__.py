"""The log read in ranges that tasks share, joined to what a serial scan meets."""

__all__ = [
    "derived",
    "index_probe",
    "queue_numbers",
    "range_planning",
    "range_walk",
    "spool",
    "unit_replay",
]
