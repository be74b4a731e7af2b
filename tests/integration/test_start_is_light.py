"""What is loaded by the time a server says that clients can connect: loading is nearly all of it.

No clock is read here.  A module that is not needed for the start is named, with those it brings.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

WATCHED: Final = """
import io, sys

class Watched(io.TextIOWrapper):
    def write(self, text):
        return super().write(f"loaded: {' '.join(sys.modules)}\\n{text}")

sys.stdout = Watched(sys.stdout.detach(), line_buffering=True)
from flintmq.cli.main import main
main()
"""
"""Says with each line of output what is loaded, then does what ``flintmq`` does."""

NEEDLESS: Final = frozenset(
    {
        # The extras: a broker takes up numpy when the first keys come.
        "numpy",
        "numba",
        "pandas",
        "pyarrow",
        "pyspark",
        # For what is escaped in a properties file, and what that brings
        "javaproperties",
        "xml",
        "http",
        "email",
        "urllib.request",
        # For SQL92 subscriptions
        "lark",
        "flintmq.filter.java_places",
        "flintmq.filter.nodes",
        "flintmq.filter.parser",
        "flintmq.filter.sql92",
        # For requests that many brokers never get
        "flintmq.broker.processors.occasional_table",
        "flintmq.broker.processors.operator_table",
        # For batches that came compressed
        "lz4",
        "backports.zstd",
        "compression.zstd",
        # For metrics, which nobody has asked for here
        "prometheus_client",
        "flintmq.broker.measuring.size_metrics",
        "flintmq.metrics.families",
        "flintmq.metrics.metrics_endpoint",
        "flintmq.namesrv.exposed_namesrv",
        "flintmq.remoting.server_metrics",
        # For stores that hold something already, and for those with rare settings
        "flintmq.format.stored.record_search",
        "flintmq.store.log.record_walk",
        "flintmq.store.recovery.damage",
        "flintmq.store.recovery.fast_walk",
        "flintmq.store.recovery.index_repair",
        "flintmq.store.recovery.log_survey",
        "flintmq.store.recovery.queue_repair",
        "flintmq.store.recovery.recovery",
        "flintmq.store.recovery.set_aside",
        "flintmq.store.files.transient_pool",
        "flintmq.store.views.consume_queue_ext",
        # For slaves
        "flintmq.broker.replication.slave_connection",
        "flintmq.broker.replication.slave_link",
        "flintmq.broker.waiting.replicated_puts",
        "flintmq.format.wire.ha_stream",
        # For transactions, for delayed messages with synchronous flush, for errors on a terminal
        "flintmq.broker.transactions.half_messages",
        "flintmq.store.upkeep.schedule_pipeline",
        "flintmq.cli.output.text",
        # For senders that name no queue, and for threads that send by themselves
        "random",
        "flintmq.remoting.shared_socket",
        # For misspelt keys, for names of hosts that are not ASCII, for texts on a terminal
        "difflib",
        "encodings.idna",
        "rich",
        # Nobody's need
        "importlib.metadata",
        "pkg_resources",
        "shutil",
        "tempfile",
        "unittest",
        "flintmq.cli.store.store_commands",
        "flintmq.cli.pipeline.pipeline_group",
        "flintmq.client",
        "flintmq.offline",
        "flintmq.spark",
        "flintmq.testing",
    }
)


def loaded_by(*arguments: str) -> frozenset[str]:
    """Return the modules that a server has loaded when it says that it is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED, *arguments, "--log-level=error"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            process.kill()
    assert line.startswith("loaded: "), line
    return frozenset(line.split()[1:])


def broker_arguments(directory: Path) -> tuple[str, ...]:
    settings = directory / "broker.properties"
    settings.write_text(
        f"listenPort=0\nstorePathRootDir={directory / 'store'}\nnamesrvAddr=127.0.0.1\\:1\n"
    )
    return ("broker", f"--config={settings}")


@pytest.mark.parametrize("kind", ["broker", "serve", "namesrv"])
def test_what_a_start_does_not_need_is_not_loaded(kind: str, tmp_path: Path) -> None:
    arguments = {
        "broker": broker_arguments(tmp_path),
        "serve": ("serve", f"--data={tmp_path}", "--namesrv-port=0", "--broker-port=0"),
        "namesrv": (
            "namesrv",
            "--set=listenPort=0",
            f"--set=kvConfigPath={tmp_path / 'pairs.json'}",
        ),
    }
    loaded = loaded_by(*arguments[kind])
    assert "flintmq.remoting.server" in loaded
    assert loaded & NEEDLESS == set()


def test_a_broker_needs_no_name_server_and_a_name_server_no_broker(tmp_path: Path) -> None:
    assert "flintmq.namesrv" not in loaded_by(*broker_arguments(tmp_path))
    alone = loaded_by("namesrv", "--set=listenPort=0", f"--set=kvConfigPath={tmp_path / 'pairs'}")
    assert alone & {"flintmq.broker", "flintmq.store"} == set()


def test_a_module_that_was_loaded_is_seen(tmp_path: Path) -> None:
    settings = tmp_path / "broker.properties"
    settings.write_text(f"listenPort=0\nstorePathRootDir={tmp_path}\nbrokerName=a\\u0062c\n")
    assert "javaproperties" in loaded_by("broker", f"--config={settings}")
