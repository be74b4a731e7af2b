"""Shared libraries are loaded before the package that needs them is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.kernels.library_load import LLVM_PACKAGE, load_libraries

PROGRAM = """
import sys
from flintmq.kernels.library_load import LLVM_PACKAGE, load_libraries

loaded = load_libraries(LLVM_PACKAGE)
assert LLVM_PACKAGE not in sys.modules
with open("/proc/self/maps") as maps:
    mapped = maps.read()
assert all(str(path.resolve()) in mapped for path in loaded)
import llvmlite.binding
print(len(loaded))
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells what is loaded")
def test_the_library_is_there_before_the_import() -> None:
    pytest.importorskip(LLVM_PACKAGE)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_what_is_not_installed_has_no_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_libraries("no_such_package_anywhere") == []
    package = tmp_path / "odd_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "libodd.so").write_text("no library")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_libraries("odd_package") == []
