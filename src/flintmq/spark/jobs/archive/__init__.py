"""Archives of stores and live topics as Parquet, and stores restored from them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.archive.archive_check import ArchiveCheck, check_archive
    from flintmq.spark.jobs.archive.archive_run import ArchiveReport, ArchiveRules
    from flintmq.spark.jobs.archive.live_archive import (
        LiveArchiveRequest,
        archive_live_topics,
        archive_topics,
    )
    from flintmq.spark.jobs.archive.store_archive import (
        StoreArchiveRequest,
        archive,
        archive_stores,
        archived_messages,
    )
    from flintmq.spark.jobs.archive.store_restore import (
        RestoreReport,
        RestoreRequest,
        restore,
        restore_store,
    )
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "archive_check": (
                "ArchiveCheck",
                "check_archive",
            ),
            "archive_run": (
                "ArchiveReport",
                "ArchiveRules",
            ),
            "live_archive": (
                "LiveArchiveRequest",
                "archive_live_topics",
                "archive_topics",
            ),
            "store_archive": (
                "StoreArchiveRequest",
                "archive",
                "archive_stores",
                "archived_messages",
            ),
            "store_restore": (
                "RestoreReport",
                "RestoreRequest",
                "restore",
                "restore_store",
            ),
        },
    )

__all__ = [
    "ArchiveCheck",
    "ArchiveReport",
    "ArchiveRules",
    "LiveArchiveRequest",
    "RestoreReport",
    "RestoreRequest",
    "StoreArchiveRequest",
    "archive",
    "archive_check",
    "archive_live_topics",
    "archive_manifest",
    "archive_run",
    "archive_stores",
    "archive_topics",
    "archived_messages",
    "check_archive",
    "live_archive",
    "restore",
    "restore_store",
    "store_archive",
    "store_restore",
]
