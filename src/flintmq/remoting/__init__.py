"""The transport: connections, a listener, a client; typed requests by code."""

from flintmq.remoting.client import RemotingClient
from flintmq.remoting.connection import Connection
from flintmq.remoting.errors import (
    AnswerTimeoutError,
    BindError,
    ConnectError,
    ConnectionLostError,
    RefusedError,
    RemotingError,
    TooManyInFlightError,
)
from flintmq.remoting.limits import Limits
from flintmq.remoting.processors import Answer, ProcessorTable, Request
from flintmq.remoting.server import RemotingServer, bind

__all__ = [
    "Answer",
    "AnswerTimeoutError",
    "BindError",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "Limits",
    "ProcessorTable",
    "RefusedError",
    "RemotingClient",
    "RemotingError",
    "RemotingServer",
    "Request",
    "TooManyInFlightError",
    "bind",
]
