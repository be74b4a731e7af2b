"""Store directories without a broker: stat, dump, verify, rebuild, salvage.

Nothing is ever written into the directory that is looked at, and a broker may run in it
meanwhile.
"""

from flintmq.offline.dump import Dump, Selection
from flintmq.offline.errors import (
    NotAStoreError,
    OfflineError,
    OutputError,
    RequestError,
    UnknownIndexShapeError,
)
from flintmq.offline.findings import Finding, Findings, Kind, Severity
from flintmq.offline.layout import SizeOptions, StoreLayout, find_store
from flintmq.offline.readable_bodies import BODY_SHOWN_MAX, BodyForm
from flintmq.offline.rebuild import RebuildReport, rebuild
from flintmq.offline.salvaging.store_salvage import SalvageReport, salvage
from flintmq.offline.scan import Damage, Progress
from flintmq.offline.set_aside_files import set_aside_logs
from flintmq.offline.stat import StoreStat, stat
from flintmq.offline.trial.trial_start import StartReport, start_config, try_start
from flintmq.offline.verify.store_verify import VerifyReport, verify

__all__ = [
    "BODY_SHOWN_MAX",
    "BodyForm",
    "Damage",
    "Dump",
    "Finding",
    "Findings",
    "Kind",
    "NotAStoreError",
    "OfflineError",
    "OutputError",
    "Progress",
    "RebuildReport",
    "RequestError",
    "SalvageReport",
    "Selection",
    "Severity",
    "SizeOptions",
    "StartReport",
    "StoreLayout",
    "StoreStat",
    "UnknownIndexShapeError",
    "VerifyReport",
    "derive",
    "dump",
    "errors",
    "find_store",
    "findings",
    "index_geometry",
    "layout",
    "log_files",
    "queue_extension",
    "queue_files",
    "queue_proof",
    "readable_bodies",
    "rebuild",
    "regions",
    "salvage",
    "scan",
    "set_aside_files",
    "set_aside_logs",
    "start_config",
    "stat",
    "store_lock",
    "stored_messages",
    "try_start",
    "verify",
]
