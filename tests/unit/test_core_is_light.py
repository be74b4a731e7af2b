"""The core needs nothing of the extras: every module of it imports where they cannot be."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys

class Refuse:
    names = {"pyspark", "pyarrow", "pandas", "numpy", "numba", "starlette", "uvicorn"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} belongs to an extra")
        return None

sys.meta_path.insert(0, Refuse())
import flintmq

of_the_extra_fast = {"flintmq.store.compiled_runs", "flintmq.broker.compiled_sends"}
core = "errors model format settings store remoting namesrv broker client offline cli testing"
count = 0
for package in core.split():
    module = importlib.import_module(f"flintmq.{package}")
    count += 1
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"flintmq.{package}."):
        if found.name not in of_the_extra_fast:
            importlib.import_module(found.name)
            count += 1
from flintmq.broker.send_runs import Later, _load_compiled
machine_code = Later(_load_compiled, ask_count=1)
assert machine_code.get() is None
machine_code.wait()
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
