"""A server whose gate is watched: what is admitted, and what is handled after it."""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.table import HEADERS
from flintmq.remoting import RefusedError, RemotingServer, RequestTable
from flintmq.remoting.processors import Outcome, Processor, Request
from flintmq.remoting.received_request import ReceivedRequest
from flintmq.remoting.request_table import BulkHandler, RequestSource
from tests.kits.broker.hostile_peer import MemoryTransport, fed_connection

ADMITTED: Final = "admitted"
GATHERED: Final = "gathered"
PROCESSED: Final = "processed"
REFUSAL: Final = "not through this gate"
PLAIN_TEXTS: Final = {
    "topic": "T",
    "default_topic": "TBW102",
    "consumer_group": "g",
    "group": "g",
    "group_name": "g",
    "subscription": "*",
    "broker_addr": "127.0.0.1:1",
}
"""Texts with which requests can be handled; fields of other names get any."""
PLAIN_NUMBERS: Final = {
    "sys_flag": "4",  # A pull that brings its subscription, a send of the first transaction kind.
    "perm": "6",
    "read_queue_nums": "4",
    "write_queue_nums": "4",
    "default_topic_queue_nums": "4",
    "max_msg_nums": "8",
    "commit_offset": "7",
}


def plain_fields(kind: type[Header]) -> dict[str, str]:
    """Return ext fields with which a header can be decoded."""
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {}
    for field, wire_name in zip(dataclasses.fields(kind), kind.wire_fields(), strict=True):
        hint = hints[field.name]
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            continue  # It may be missing.
        if hint is str:
            fields[wire_name] = PLAIN_TEXTS.get(field.name, "x")
        elif hint is bool:
            fields[wire_name] = "false"
        else:
            fields[wire_name] = PLAIN_NUMBERS.get(field.name, "0")
    return fields


def request_of(code: int, **more: Any) -> dict[str, Any]:
    """Return a request that its processor can read."""
    fields = plain_fields(HEADERS[code].request) if code in HEADERS else {}
    return {"code": code, "ext_fields": fields, "body": b"{}"} | more


class WatchedBulk:
    """Notes which requests a bulk handler has gathered."""

    def __init__(self, handler: BulkHandler, note: Callable[[str, int], None]) -> None:
        self._handler = handler
        self._note = note

    def gather(self, connection: RequestSource, request: ReceivedRequest) -> bool:
        is_gathered = self._handler.gather(connection, request)
        if is_gathered:
            self._note(GATHERED, request.opaque)
        return is_gathered

    def finish(self) -> None:
        self._handler.finish()


class WatchedGate:
    """One connection to a server that notes the way of each request, by its opaque number."""

    def __init__(self, server: RemotingServer) -> None:
        self.ways: dict[int, list[str]] = {}
        self.refuses = False
        self.codes = sorted(server.requests)
        self.bulk_codes = {code for code, one in server.requests.items() if one.bulk is not None}
        server.requests = RequestTable(
            {code: self._watched(one.processor) for code, one in server.requests.items()},
            bulk={
                code: WatchedBulk(one.bulk, self._note)
                for code, one in server.requests.items()
                if one.bulk is not None
            },
            admit=self._admit,
        )
        self.connection = fed_connection(server)
        self._transport = MemoryTransport(self.connection, 5000)
        self.connection.connection_made(self._transport)
        self._opaque = 0

    def _note(self, what: str, opaque: int) -> None:
        self.ways.setdefault(opaque, []).append(what)

    def _admit(self, connection: RequestSource, request: ReceivedRequest) -> None:
        assert connection is self.connection
        self._note(ADMITTED, request.opaque)
        if self.refuses:
            raise RefusedError(ResponseCode.NO_PERMISSION, REFUSAL)

    def _watched(self, processor: Processor) -> Processor:
        def watched(request: Request[Any]) -> Any:
            self._note(PROCESSED, request.command.opaque)
            outcome: Outcome | Any = processor(request)
            return outcome

        return watched

    def ask(self, *requests: dict[str, Any], header_type: HeaderType) -> list[list[str]]:
        """Have the server read some requests at once; return the way that each of them went."""
        first = self._opaque + 1
        frames = []
        for request in requests:
            self._opaque += 1
            command = Command(opaque=self._opaque, serialize_type=header_type, **request)
            frames.append(encode_command(command))
        self.connection.data_received(b"".join(frames))
        assert not self._transport.is_closing()
        return [self.ways.get(opaque, []) for opaque in range(first, self._opaque + 1)]

    def answers(self) -> list[Command]:
        """Return the answers that came since they were last asked for."""
        written, self._transport.written = b"".join(self._transport.written), []
        found = map(decode_command, FrameDecoder().frames(written))
        return [command for command in found if command.is_response]


def all_requests(codes: list[int]) -> list[dict[str, Any]]:
    """Return requests of all codes: with header fields and without, one-way and not."""
    return [
        request_of(code, flag=flag, **more)
        for code in codes
        for flag in (0, ONE_WAY_FLAG)
        for more in ({}, {"ext_fields": {}, "body": b""})
    ]
