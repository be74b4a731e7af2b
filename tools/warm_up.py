"""Makes once what the processes of a whole test run share: ``python -m tools.warm_up``.

`make test` does it beside its checks, which use one core.  Otherwise each of the processes would
compile all sources and tests, and the first that needs Spark would make its archive of classes.
"""

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools import compile_kernels
from tools.whole_run import keep_compiled

ROOT: Final = Path(__file__).resolve().parents[1]


def compile_tests(root: Path) -> bool:
    """Have pytest compile the tests of a project, unless none has changed since it did.

    Return whether it had to.  What is wrong with a test is told by the run.
    """
    mark = root / ".run" / "tests-compiled"
    newest_ns = max(path.stat().st_mtime_ns for path in (root / "tests").rglob("*.py"))
    if mark.exists() and mark.stat().st_mtime_ns >= newest_ns:
        return False
    subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-q", "tests"],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    # A test that was changed meanwhile is newer.
    os.utime(mark, ns=(newest_ns, newest_ns))
    return True


def main() -> int:
    """Make what is missing; return the exit code."""
    keep_compiled()
    # Those that were changed since `make setup`.
    compileall.compile_dir(ROOT / "src", quiet=1)
    code = compile_kernels.main()
    compile_tests(ROOT)
    if shutil.which("java") is not None or "JAVA_HOME" in os.environ:
        # It needs PySpark, which not everything above does.
        from tests.kits.spark.light_spark import light_java

        light_java()
    return code


if __name__ == "__main__":
    sys.exit(main())
