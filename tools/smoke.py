"""A smoke test of an installed FlintMQ: `make release-check` runs it in empty environments.

    python -I smoke.py [EXTRA]

It uses what users use: the command, the public names, a cluster inside the process. With the name
of an extra it also tries what that extra brings. It needs nothing but the installed package.
"""

import importlib
import logging
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

BATCH_COUNT: Final = 200
"""Batches that are sent: more than a broker takes before it loads machine code."""

LOAD_SECONDS_MAX: Final = 300.0
"""Loading machine code for the first time on a machine compiles it."""

PUBLIC_MODULES: Final = ("flintmq", "flintmq.testing")


def check_command() -> str:
    """Run ``flintmq --version`` and return the version that it names."""
    import flintmq

    program = Path(sysconfig.get_path("scripts"), "flintmq")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    expected = f"flintmq, version {flintmq.__version__}\n"
    assert done.stdout == expected, done.stdout
    return f"version {flintmq.__version__}"


def check_names() -> str:
    """Import every public name, from the installed package and from nowhere else."""
    count = 0
    home = Path(sys.prefix).resolve()
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        assert module.__file__ is not None
        assert Path(module.__file__).resolve().is_relative_to(home), module.__file__
        for public in module.__all__:
            getattr(module, public)
            count += 1
    return f"{count} public names"


def check_cluster() -> str:
    """Send a message to a cluster in this process, and receive it."""
    from flintmq import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
    from flintmq.testing import EmbeddedCluster

    arrived = threading.Event()
    bodies: list[bytes] = []

    def handle(message: ReceivedMessage) -> None:
        bodies.append(message.body)
        arrived.set()

    with EmbeddedCluster() as cluster:
        with Producer(namesrv=cluster.namesrv, group="smoke") as producer:
            producer.send(Message(topic="smoke", body=b"hello", tag="a", keys=["k"]))
        with PushConsumer(
            namesrv=cluster.namesrv,
            group="smoke-readers",
            subscriptions={"smoke": "a"},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            assert arrived.wait(30), "no message came"
    assert bodies == [b"hello"], bodies
    return "a message sent and received"


class _MachineCodeNews(logging.Handler):
    """Waits for what a broker logs about machine code: that it has it, or that it has not."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # On a new machine it is compiled before it is loaded.
        if text.startswith("machine code is ") and "being compiled" not in text:
            self.text = text
            self.heard.set()


def check_machine_code() -> str:
    """Give a broker so much to do that it loads machine code."""
    from flintmq import Message, Producer
    from flintmq.testing import EmbeddedCluster

    logger = logging.getLogger("flintmq")
    logger.setLevel(logging.INFO)
    news = _MachineCodeNews()
    logger.addHandler(news)
    messages = [Message(topic="smoke", body=b"%d" % number) for number in range(32)]
    with (
        EmbeddedCluster(machineCode=True) as cluster,
        Producer(namesrv=cluster.namesrv, group="smoke") as producer,
    ):
        for _ in range(BATCH_COUNT):
            producer.send_batch(messages)
        assert news.heard.wait(LOAD_SECONDS_MAX), "nothing was heard of machine code"
        assert news.text.startswith("machine code is loaded"), news.text
        for _ in range(BATCH_COUNT):
            producer.send_batch(messages)
        count = len(messages) * BATCH_COUNT * 2
        assert len(cluster.wait_for("smoke", count, timeout_s=60)) == count
    return f"{count} messages, {news.text}"


def check_spark() -> str:
    """Read the store of a cluster as a Spark table."""
    from pyspark.sql import SparkSession

    from flintmq.testing import EmbeddedCluster

    # Workers must run this Python; in an activated environment they would find it by themselves.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="flintmq-smoke-") as root:
        with EmbeddedCluster(root=Path(root)) as cluster:
            for number in range(100):
                cluster.send("smoke", b"%d" % number)
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .getOrCreate()
        )
        try:
            rows = spark.read.format("flintmq").load(str(Path(root, "store")))
            numbers = {int(row.body) for row in rows.where("topic = 'smoke'").collect()}
        finally:
            spark.stop()
    assert numbers == set(range(100)), numbers
    return f"{len(numbers)} rows read by Spark"


def check_packages(*names: str) -> str:
    """Import packages of an extra that has nothing of ours to run yet."""
    for name in names:
        importlib.import_module(name)
    return f"imported {', '.join(names)}"


CHECKS: Final[dict[str, tuple[Callable[[], str], ...]]] = {
    "fast": (check_machine_code,),
    "spark": (check_spark, check_machine_code),
    "console": (lambda: check_packages("starlette", "uvicorn"),),
    "docs": (lambda: check_packages("furo", "myst_parser", "sphinx"),),
    "test": (lambda: check_packages("hypothesis", "pytest", "xdist"),),
    "dev": (
        lambda: check_packages("fastapi", "hypothesis", "mypy", "nbclient", "pytest", "xdist"),
    ),
}
"""What is tried besides the core, by extra."""


def main(arguments: list[str]) -> int:
    """Run the checks of the core and of the named extras; a failed check raises."""
    for extra in arguments:
        if extra not in CHECKS:
            print(f"smoke: nothing is known about the extra {extra!r}", file=sys.stderr)
            return 2
    checks = [check_command, check_names, check_cluster]
    checks += [check for extra in arguments for check in CHECKS[extra]]
    for check in checks:
        print(f"  {check()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
