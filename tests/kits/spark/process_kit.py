"""Jobs as processes of their own, so that they can be killed; and how far they have come."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.instance import ClientInstance
from tests.kits.spark import sink_driver
from tests.kits.spark.light_spark import light_java, light_python
from tests.kits.spark.live_kit import until
from tests.kits.spark.sink_kit import ask

ROOT = Path(__file__).parents[3]
END_S = 180
LOOK_S = 0.1
"""Between two questions of how far a job is: it needs the processor more than who asks."""


@contextmanager
def running(
    command: list[str], *, log: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver with its JVM in a process group; whatever is left of it is killed."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pipeline(
    *arguments: str, log: Path, **environment: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run ``flintmq pipeline``."""
    command = [sys.executable, "-m", "flintmq", "pipeline", *arguments]
    for who in ("driver", "executor"):
        command += ["--conf", f"spark.{who}.extraJavaOptions={light_java()}"]
    return running(command, log=log, **light_python(), **environment)


def query(
    namesrv: str, checkpoint: str, *, rate: int, log: Path
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run the query of `sink_driver`."""
    command = [sys.executable, sink_driver.__file__, namesrv, checkpoint, str(rate)]
    # Sources that are on the path of this process go before those that are installed.
    path = os.pathsep.join((str(ROOT), light_python()["PYTHONPATH"]))
    return running(command, log=log, PYTHONPATH=path, PYSPARK_PYTHON=sys.executable)


def kill_when_sent(
    process: subprocess.Popen[bytes], namesrv: str, topic: str, count: int, log: Path
) -> None:
    """Kill driver and JVM once a topic has so many messages; they must not be at their end."""

    def is_sent() -> bool:
        assert process.poll() is None, log.read_text()
        return stored_count(namesrv, topic) >= count

    until(is_sent, timeout_s=END_S, pause_s=LOOK_S)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def stored_count(namesrv: str, topic: str) -> int:
    """Return how many messages a topic has, repeats too; none if it does not exist."""

    async def ends(client: ClientInstance) -> int:
        bounds = QueueBounds(client)
        queues = await client.routes.subscribe_queues(topic)
        return sum([max(0, await bounds.end(queue)) for queue in queues])

    return int(ask(namesrv, ends))
