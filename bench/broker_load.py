"""Load on a broker: by a generator in Go where there is one, else by processes of our own.

Both keep a fixed window of requests in flight on each connection and do as little as possible
besides, so that what they measure is the broker.
"""

import json
import multiprocessing
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bench.workload import properties_of
from flintmq.format.host import parse_address
from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.pull import PullMessageRequest
from flintmq.format.wire.headers.send import SendMessageRequestV2

QUEUE_COUNT: Final = 4
PULL_COUNT: Final = 32
BUILD_TIMEOUT_S: Final = 300
FILL_TIMEOUT_S: Final = 600
SOURCE: Final = Path(__file__).parent / "load"
"""The generator in Go."""
_READ_SIZE: Final = 1 << 20
_FRAMES: Final = 256
"""Different requests of one connection; they go round."""


class Sending(NamedTuple):
    """How messages are sent."""

    body_size: int
    connection_count: int
    window: int
    batch_size: int = 1
    notation: HeaderType = HeaderType.JSON


class Loaded(NamedTuple):
    """What a generator has seen: messages a second, and latencies where it takes them."""

    per_second: float
    p50_us: float = 0
    p99_us: float = 0
    p999_us: float = 0


class LoadError(RuntimeError):
    """A broker refused requests, or the generator failed."""


class Load(Protocol):
    """A generator."""

    name: str

    def send(self, address: str, topic: str, sending: Sending, seconds: float) -> Loaded:
        """Send for a while."""
        ...

    def fill(self, address: str, topic: str, sending: Sending, count: int) -> Loaded:
        """Send so many messages."""
        ...

    def pull(self, address: str, topic: str, seconds: float) -> Loaded:
        """Read a topic again and again."""
        ...

    def push(self, address: str, topic: str, rate: int, seconds: float) -> Loaded:
        """Send at a fixed rate while pulls wait; the latencies are from send to arrival."""
        ...


class GoLoad:
    """The generator in Go, built from ``bench/load``."""

    name = "generator in Go"

    def __init__(self, work: Path) -> None:
        self._binary = work / "load"
        build = ["go", "build", "-o", str(self._binary), "."]
        subprocess.run(build, cwd=SOURCE, check=True, timeout=BUILD_TIMEOUT_S)

    @staticmethod
    def is_there() -> bool:
        """Whether it can be built."""
        return shutil.which("go") is not None

    def send(self, address: str, topic: str, sending: Sending, seconds: float) -> Loaded:
        """Send for a while."""
        return self._run("send", address, topic, seconds, _send_options(sending))

    def fill(self, address: str, topic: str, sending: Sending, count: int) -> Loaded:
        """Send so many messages."""
        return self._run("send", address, topic, FILL_TIMEOUT_S, _send_options(sending, count))

    def pull(self, address: str, topic: str, seconds: float) -> Loaded:
        """Read a topic again and again."""
        return self._run("pull", address, topic, seconds, {"queues": QUEUE_COUNT})

    def push(self, address: str, topic: str, rate: int, seconds: float) -> Loaded:
        """Send at a fixed rate while pulls wait; the latencies are from send to arrival."""
        return self._run("push", address, topic, seconds, {"rate": rate})

    def _run(
        self, mode: str, address: str, topic: str, seconds: float, options: dict[str, object]
    ) -> Loaded:
        command = [str(self._binary), mode, "-addr", address, "-topic", topic]
        command += ["-seconds", str(seconds)]
        for key, value in options.items():
            command += [f"-{key}", str(value)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + 60, check=False
        )
        if done.returncode != 0 or not done.stdout:
            raise LoadError(done.stderr)
        result = json.loads(done.stdout)
        if result.get("failed"):
            raise LoadError(f"{result['failed']} messages were refused")
        rate = result["received"] / seconds if mode == "push" else result["msgs_per_s"]
        return Loaded(rate, *[result.get(name, 0) for name in ("p50_us", "p99_us", "p999_us")])


def _send_options(sending: Sending, count: int = 0) -> dict[str, object]:
    return {
        "conns": sending.connection_count,
        "window": sending.window,
        "size": sending.body_size,
        "batch": sending.batch_size,
        "header": sending.notation.name.lower(),
        "count": count,
    }


class PythonLoad:
    """One process for each connection; it takes no latencies."""

    name = "generator in Python"

    def send(self, address: str, topic: str, sending: Sending, seconds: float) -> Loaded:
        """Send for a while."""
        arguments = (address, topic, sending, sending.notation, seconds)
        return Loaded(_in_processes(_send, sending.connection_count, arguments))

    def pull(self, address: str, topic: str, seconds: float) -> Loaded:
        """Read a topic again and again."""
        return Loaded(_in_processes(_pull, QUEUE_COUNT, (address, topic, HeaderType.JSON, seconds)))

    def fill(self, address: str, topic: str, sending: Sending, count: int) -> Loaded:
        """Say that only the generator in Go can do this."""
        raise LoadError("to send so many messages takes the generator in Go")

    def push(self, address: str, topic: str, rate: int, seconds: float) -> Loaded:
        """Say that only the generator in Go can do this."""
        raise LoadError("push latencies need the generator in Go")


def _in_processes(work: Callable[..., float], count: int, arguments: tuple[object, ...]) -> float:
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        return sum(pool.starmap(work, [(number, *arguments) for number in range(count)]))


def _send(
    number: int, address: str, topic: str, sending: Sending, kind: HeaderType, seconds: float
) -> float:
    frames = [_send_frame(number, n, topic, sending, kind) for n in range(_FRAMES)]
    with socket.create_connection(parse_address(address)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = _AnswerReader(peer)
        started = time.perf_counter()
        deadline = started + seconds
        next_frame = answered = in_flight = 0
        while True:
            if time.perf_counter() < deadline:
                some = range(next_frame, next_frame + sending.window - in_flight)
                peer.sendall(b"".join(frames[n % _FRAMES] for n in some))
                next_frame, in_flight = some.stop, sending.window
            elif in_flight == 0:
                break
            count = len(reader.read())
            in_flight -= count
            answered += count
        return answered * sending.batch_size / (time.perf_counter() - started)


def _send_frame(
    number: int, sequence: int, topic: str, sending: Sending, kind: HeaderType
) -> bytes:
    is_batch = sending.batch_size > 1
    first = (number * _FRAMES + sequence) * sending.batch_size
    body = b"x" * sending.body_size
    texts = [encode_properties(properties_of(first + n)) for n in range(sending.batch_size)]
    header = SendMessageRequestV2(
        producer_group="PID_load",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUE_COUNT,
        queue_id=number % QUEUE_COUNT,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=None if is_batch else texts[0].decode(),
        batch=is_batch,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    if is_batch:
        body = encode_batch([BatchItem(0, body, text) for text in texts])
    return encode_command(
        Command(
            code=code,
            opaque=sequence,
            ext_fields=header.encode(),
            body=body,
            serialize_type=kind,
        )
    )


def _pull(number: int, address: str, topic: str, kind: HeaderType, seconds: float) -> float:
    with socket.create_connection(parse_address(address)) as peer:
        reader = _AnswerReader(peer)
        started = time.perf_counter()
        deadline = started + seconds
        offset = count = 0
        while time.perf_counter() < deadline:
            peer.sendall(_pull_frame(topic, number, offset, kind))
            while not (bodies := reader.read(refusals=True)):
                pass
            found = _record_count(bodies[0])
            # At the end, from the start again.
            offset = offset + found if found else 0
            count += found
        return count / (time.perf_counter() - started)


def _pull_frame(topic: str, queue_id: int, offset: int, kind: HeaderType) -> bytes:
    header = PullMessageRequest(
        consumer_group="CID_load",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=PULL_COUNT,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    command = Command(
        code=RequestCode.PULL_MESSAGE,
        opaque=1,
        ext_fields=header.encode(),
        serialize_type=kind,
    )
    return encode_command(command)


def _record_count(body: bytes) -> int:
    at = count = 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4])
        count += 1
    return count


class _AnswerReader:
    """Cuts answers from a stream and looks at nothing but their code."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._rest = b""

    def read(self, *, refusals: bool = False) -> list[bytes]:
        """Return the bodies of the answers that one read completes; of refusals an empty one."""
        chunk = self._peer.recv(_READ_SIZE)
        if not chunk:
            raise LoadError("the broker has closed the connection")
        stream = self._rest + chunk
        bodies = []
        at = 0
        while len(stream) - at >= 8:
            end = at + 4 + int.from_bytes(stream[at : at + 4])
            if end > len(stream):
                break
            body_start = at + 8 + int.from_bytes(stream[at + 5 : at + 8])
            is_fine = _is_success(stream[at + 4], stream[at + 8 : body_start])
            if not (is_fine or refusals):
                raise LoadError(f"refused: {stream[at + 8 : body_start]!r}")
            bodies.append(stream[body_start:end] if is_fine else b"")
            at = end
        self._rest = stream[at:]
        return bodies


def _is_success(kind: int, header: bytes) -> bool:
    if kind == HeaderType.JSON:
        return b'"code":0,' in header
    return header.startswith(b"\0\0")
