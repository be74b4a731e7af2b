"""The core needs nothing of the extras: every module of it imports where they cannot be."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys, threading

class Refuse:
    names = {"pyspark", "pyarrow", "pandas", "numpy", "numba", "starlette", "uvicorn"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} belongs to an extra")
        return None

sys.meta_path.insert(0, Refuse())
import flintmq

of_the_extra_fast = {
    "flintmq.store.append_group.compiled_encoder",
    "flintmq.offline.salvaging.moved_records",
    "flintmq.store.reading.compiled_copies",
    "flintmq.store.reading.compiled_read",
    "flintmq.store.recovery.bulk_records",
    "flintmq.broker.sending.compiled_answers",
    "flintmq.broker.sending.compiled_sends",
    "flintmq.broker.sending.known_headers",
    "flintmq.broker.pulling.compiled_pulls",
    "flintmq.broker.pulling.copied_answers",
}
core = "errors model format settings metrics store filter remoting access"
core += " namesrv broker client offline cli testing"
count = 0
for package in core.split():
    module = importlib.import_module(f"flintmq.{package}")
    count += 1
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"flintmq.{package}."):
        if found.name not in of_the_extra_fast:
            importlib.import_module(found.name)
            count += 1
from flintmq.kernels.background_load import THREAD_NAME, LoadOnDemand
from flintmq.store.append_group.encoder_choice import load_compiled_encoder
machine_code = LoadOnDemand(load_compiled_encoder, ask_count=1)
assert machine_code.get() is None
[thread.join() for thread in threading.enumerate() if thread.name == THREAD_NAME]
assert machine_code.get() is None
print(count)
"""


def test_every_core_module_imports_without_the_extras() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60


def test_the_guard_refuses_what_belongs_to_an_extra() -> None:
    program = PROGRAM.replace("import flintmq\n", "import numpy\n")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "belongs to an extra" in done.stderr


def test_a_server_loads_late_what_its_start_does_not_need() -> None:
    late = (
        "yaml",
        "flintmq.access",
        "flintmq.broker.processors.operator_table",
        "flintmq.broker.replication.replica",
        "flintmq.broker.transactions.transaction_check",
        "flintmq.cli.servers.supervision",
        "flintmq.remoting.tls_files",
        "flintmq.remoting.tls_listener",
    )
    program = (
        "import sys, flintmq.cli.servers.serve_command; "
        f"print([one for one in sys.modules if one.startswith({late!r})])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
