"""Files: the one layer through which every file call goes, and what is built on mapped files."""

__all__ = [
    "allocation",
    "interface",
    "local_files",
    "local_region",
    "mapped_file",
    "mapped_file_queue",
    "placement",
    "record_lock",
    "state_file",
    "transient_pool",
    "unsynced",
]
