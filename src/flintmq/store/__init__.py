"""The files of one broker: map, append, index, flush, recover, expire."""

__all__ = [
    "append_group",
    "appending",
    "clock",
    "config",
    "errors",
    "files",
    "log",
    "log_cut",
    "message_store",
    "read_cursor",
    "reading",
    "recovery",
    "results",
    "running_flags",
    "upkeep",
    "views",
]
