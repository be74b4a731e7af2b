"""The broker: stores messages and hands them out."""

from flintmq.broker.broker import Broker, run_broker
from flintmq.broker.config import BrokerConfig, misspelt_keys, read_settings
from flintmq.store.config import StoreConfig

__all__ = [
    "Broker",
    "BrokerConfig",
    "StoreConfig",
    "failover",
    "misspelt_keys",
    "read_settings",
    "run_broker",
]
