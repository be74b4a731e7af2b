"""The transport: connections, a listener, a client; typed requests by code."""

from flintmq.remoting.client import RemotingClient
from flintmq.remoting.connection import Connection
from flintmq.remoting.encoded_request import EncodedRequest
from flintmq.remoting.errors import (
    AnswerTimeoutError,
    BindError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NotSentError,
    RefusedError,
    RemotingError,
    TlsError,
    TooManyInFlightError,
)
from flintmq.remoting.limits import Limits
from flintmq.remoting.processors import Answer, Request
from flintmq.remoting.received_request import ReceivedRequest
from flintmq.remoting.request_table import RequestTable
from flintmq.remoting.server import RemotingServer, allow_reuse, bind

__all__ = [
    "Answer",
    "AnswerTimeoutError",
    "BindError",
    "ClosedError",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "EncodedRequest",
    "Limits",
    "NotSentError",
    "ReceivedRequest",
    "RefusedError",
    "RemotingClient",
    "RemotingError",
    "RemotingServer",
    "Request",
    "RequestTable",
    "TlsError",
    "TooManyInFlightError",
    "addresses",
    "allow_reuse",
    "bind",
    "errors",
    "fair_turns",
    "paced_log",
    "peer",
    "processors",
    "refusal_counts",
    "request_latencies",
    "request_table",
    "server_limits",
    "server_metrics",
    "tls_files",
    "tls_listener",
    "tls_setup",
]
