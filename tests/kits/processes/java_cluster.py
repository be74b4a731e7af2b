"""The official name server and broker, run on a store directory and read with the official client.

``assert_java_reads`` is the judgement other tests use: a copy of a store is given to the real
broker, and what a real client reads from it has to equal what is expected.
"""

import contextlib
import json
import math
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from flintmq.store.config import StoreConfig
from tests.kits.processes.java_process import JavaProcess, JavaProcessError
from tests.kits.processes.java_toolchain import JavaToolchain

HOST: Final = "127.0.0.1"
START_ATTEMPTS: Final = 3
CLIENT_TIMEOUT_S: Final = 60

# Below the range from which the kernel hands out ports, so that nobody gets ours by chance.
_PORT_RANGE: Final = range(20_000, 30_000)
_HEAP_FLAGS: Final = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_SYSTEM_TOPICS: Final = frozenset(
    {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
)
_SYSTEM_PREFIXES: Final = ("%RETRY%", "%DLQ%")
# The broker must change nothing by itself: no file is old enough, no disk full enough.
_KEEP_EVERYTHING: Final = {
    "fileReservedTime": "100000",
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
}
_LOGBACK: Final = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{path}</file>
    <encoder><pattern>%d %p %c{{1}} %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True, order=True)
class KeyQuery:
    """A search by key: what a client asks of the index."""

    topic: str
    key: str


@dataclass(frozen=True, slots=True)
class JavaView:
    """What the official client sees of a broker."""

    messages: list[dict[str, Any]]
    """As in ``expected.jsonl``, queue by queue."""
    queues: dict[tuple[str, int], tuple[int, int]]
    """Topic and queue id → min and max offset."""
    queries: dict[KeyQuery, list[int]]
    """Search → physical offsets, in the order of the answer."""


class JavaCluster:
    """A name server and one broker on loopback, running on ``store`` while the context lasts.

    The broker writes into ``store``; leaving the context stops it cleanly.  ``config`` has
    RocketMQ's keys; ports and paths in it are replaced, so the commit log has one directory.
    """

    def __init__(
        self,
        store: Path,
        config: Mapping[str, object],
        *,
        work_directory: Path,
        toolchain: JavaToolchain,
    ) -> None:
        self._store = store.resolve()
        self._config = config
        self._work = work_directory.resolve()
        self._toolchain = toolchain
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        conf = self._work / "home" / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("namesrv", "broker"):
            text = _LOGBACK.format(path=self._work / f"{name}.log")
            (conf / f"logback_{name}.xml").write_text(text)
        for attempt in range(1, START_ATTEMPTS + 1):
            with ExitStack() as stack:
                try:
                    self._start(stack)
                except JavaProcessError as error:
                    # Somebody may take a port between our look and the broker's bind.
                    if "Address already in use" not in str(error) or attempt == START_ATTEMPTS:
                        raise
                    continue
                self._stack = stack.pop_all()
                break
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def kill_broker(self) -> None:
        """End the broker without a clean stop; leaving the context does nothing more to it."""
        self._broker.kill()

    def start_broker(self) -> None:
        """Start the broker again after it was killed, on the port that it had."""
        self._start_broker(self._stack)

    def read_all(self, topics: Iterable[str], queries: Iterable[KeyQuery] = ()) -> JavaView:
        """Read every queue of ``topics`` from end to end, and search for the keys."""
        request = {
            "topics": sorted(topics),
            "queries": [{"topic": query.topic, "key": query.key} for query in queries],
        }
        command = self._command("ReadAll", f"{HOST}:{self.namesrv_port}", flags=("-Xmx256m",))
        done = subprocess.run(
            command,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines or lines[-1]["kind"] != "end":
            raise JavaProcessError(f"the Java client failed:\n{done.stderr[-6000:]}")
        return _view(lines)

    def _start(self, stack: ExitStack) -> None:
        self.namesrv_port, self.broker_port = free_ports()
        namesrv_file = self._write_properties("namesrv", {"listenPort": self.namesrv_port})
        command = self._command(
            "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(namesrv_file)
        )
        namesrv = self._run(stack, "namesrv", command)
        # It keeps nothing, so it need not spend three seconds on an orderly end.
        stack.callback(namesrv.kill)
        namesrv.wait_for("boot success")
        self._start_broker(stack)

    def _start_broker(self, stack: ExitStack) -> None:
        broker_file = self._write_properties("broker", self._broker_properties())
        command = self._command("org.apache.rocketmq.broker.BrokerStartup", "-c", str(broker_file))
        self._broker = self._run(stack, "broker", command)
        self._broker.wait_for("boot success")

    def _broker_properties(self) -> dict[str, object]:
        return {
            **self._config,
            **_KEEP_EVERYTHING,
            "namesrvAddr": f"{HOST}:{self.namesrv_port}",
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": self.broker_port,
            "storePathRootDir": self._store,
            "storePathCommitLog": self._store / "commitlog",
        }

    def _write_properties(self, name: str, properties: Mapping[str, object]) -> Path:
        path = self._work / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _command(
        self, main_class: str, *arguments: str, flags: tuple[str, ...] = _HEAP_FLAGS
    ) -> list[str]:
        # The home directory is where RocketMQ puts logs and offsets when nobody tells it.
        return self._toolchain.command(
            main_class, *arguments, flags=(f"-Duser.home={self._work}", *flags)
        )

    def _run(self, stack: ExitStack, name: str, command: list[str]) -> JavaProcess:
        process = JavaProcess(
            command,
            log=self._work / f"{name}.out",
            environment={"ROCKETMQ_HOME": str(self._work / "home"), "TZ": "UTC"},
        )
        return stack.enter_context(process)


def assert_java_reads(
    store: Path,
    config: StoreConfig | Mapping[str, object],
    expected_messages: Sequence[Mapping[str, Any]],
    *,
    queries: Mapping[KeyQuery, Iterable[int]] | None = None,
    log_end: int | None = None,
) -> JavaView:
    """Give a copy of ``store`` to the Java broker and compare what a Java client reads.

    Expected messages are mappings with the keys of ``expected.jsonl``; at least topic, queueId,
    queueOffset and physicalOffset; every further key that is there is compared too.  Topics of
    the broker's own are not read.  ``queries`` gives the physical offsets each key must find.
    With ``log_end``, messages stored from there on are ignored: a broker that finds delayed
    messages due delivers them at once.  Skips the test when there is no Java.
    """
    toolchain = JavaToolchain.find()
    properties = config.to_properties() if isinstance(config, StoreConfig) else config
    expected = [message for message in expected_messages if is_user_topic(message["topic"])]
    with tempfile.TemporaryDirectory(prefix="flintmq-interop-") as name:
        work = Path(name)
        copy_store(store, work / "store")
        add_topics(work / "store", expected)
        with JavaCluster(
            work / "store", properties, work_directory=work, toolchain=toolchain
        ) as cluster:
            view = cluster.read_all({message["topic"] for message in expected}, queries or ())
            # The copy is thrown away: a clean stop would only take its time.
            cluster.kill_broker()
    end = math.inf if log_end is None else log_end
    assert_same_messages([m for m in view.messages if m["physicalOffset"] < end], expected)
    for query, offsets in (queries or {}).items():
        found = [offset for offset in view.queries[query] if offset < end]
        assert sorted(found) == sorted(offsets), query
    return view


def is_user_topic(topic: str) -> bool:
    """Tell whether a client may read ``topic``: it is none of the broker's own."""
    return topic not in _SYSTEM_TOPICS and not topic.startswith(_SYSTEM_PREFIXES)


def copy_store(source: Path, target: Path) -> None:
    """Copy a store; the copies are new and writable, whatever the originals are."""
    target.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.is_dir():
            copy_store(entry, target / entry.name)
        else:
            shutil.copyfile(entry, target / entry.name)


def add_topics(store: Path, messages: Iterable[Mapping[str, Any]]) -> None:
    """Tell the broker of the topics it does not know yet: a client finds no queue without that."""
    path = store / "config" / "topics.json"
    state: dict[str, Any] = {"dataVersion": {"counter": 1, "timestamp": 0}}
    if path.exists():
        state = json.loads(path.read_text())
    table = state.setdefault("topicConfigTable", {})
    queue_counts: dict[str, int] = {}
    for message in messages:
        count = queue_counts.get(message["topic"], 0)
        queue_counts[message["topic"]] = max(count, message["queueId"] + 1)
    for topic, count in queue_counts.items():
        table.setdefault(
            topic,
            {
                "order": False,
                "perm": 6,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            },
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(state))


def _place(message: Mapping[str, Any]) -> tuple[str, int, int]:
    return message["topic"], message["queueId"], message["queueOffset"]


def assert_same_messages(
    read: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> None:
    """Compare messages by their place in a queue, in all that both of them tell."""
    read_by_place = {_place(message): message for message in read}
    assert len(read_by_place) == len(read), "the broker gave a message twice"
    assert sorted(read_by_place) == sorted(map(_place, expected))
    for message in expected:
        found = read_by_place[_place(message)]
        compared = found.keys() & message.keys()
        assert "physicalOffset" in compared
        assert {key: found[key] for key in compared} == {key: message[key] for key in compared}


def _view(lines: Iterable[Mapping[str, Any]]) -> JavaView:
    view = JavaView([], {}, {})
    for line in lines:
        values = {key: value for key, value in line.items() if key != "kind"}
        match line["kind"]:
            case "message":
                view.messages.append(values)
            case "queue":
                place = values["topic"], values["queueId"]
                view.queues[place] = values["min"], values["max"]
            case "query":
                view.queries[KeyQuery(values["topic"], values["key"])] = values["offsets"]
    return view


def free_ports() -> tuple[int, int]:
    """Return a port for the name server and one for the broker, whose neighbours are free too.

    The broker also listens two below its port (fast lane) and one above it (replication).
    """
    for candidate in random.sample(_PORT_RANGE, len(_PORT_RANGE)):
        with contextlib.suppress(OSError), ExitStack() as stack:
            for port in range(candidate - 3, candidate + 2):
                stack.enter_context(_bound(port))
            return candidate - 3, candidate
    raise JavaProcessError(f"no five free ports in a row in {_PORT_RANGE}")


@contextlib.contextmanager
def _bound(port: int) -> Iterator[None]:
    # On every address, because that is how the broker binds.
    with socket.socket() as listener:
        listener.bind(("", port))
        yield
