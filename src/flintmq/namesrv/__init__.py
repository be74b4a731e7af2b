"""The name server: brokers register, clients ask where topics are."""

from flintmq.namesrv.config import NamesrvConfig
from flintmq.namesrv.namesrv import Namesrv, run_namesrv

__all__ = [
    "Namesrv",
    "NamesrvConfig",
    "config",
    "run_namesrv",
]
