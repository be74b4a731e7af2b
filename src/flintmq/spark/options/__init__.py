"""What a user may say in the options of the data source."""

__all__ = [
    "offset_bounds",
    "option_values",
    "queue_json",
    "read_limit",
    "store_options",
]
