"""Store directories without a broker: stat, dump, verify, rebuild.

Nothing is ever written into the directory that is looked at, and a broker may run in it
meanwhile.
"""

from flintmq.offline.dump import Dump, Selection
from flintmq.offline.errors import NotAStoreError, OfflineError, OutputError, RequestError
from flintmq.offline.findings import Finding, Findings, Kind, Severity
from flintmq.offline.layout import SizeOptions, StoreLayout, find_store
from flintmq.offline.rebuild import RebuildReport, rebuild
from flintmq.offline.scan import Damage, Progress
from flintmq.offline.stat import StoreStat, stat
from flintmq.offline.verify import VerifyReport, verify

__all__ = [
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
    "Selection",
    "Severity",
    "SizeOptions",
    "StoreLayout",
    "StoreStat",
    "VerifyReport",
    "find_store",
    "rebuild",
    "stat",
    "verify",
]
