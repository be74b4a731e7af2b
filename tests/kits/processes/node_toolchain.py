"""Node.js with the packages that the tests need: found, or skipped with a word."""

import fcntl
import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kits.processes.java_toolchain import give_up

PROJECT: Final = Path(__file__).parents[2] / "interop" / "node"
MODULES: Final = PROJECT / "node_modules"
INSTALL_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class NodeToolchain:
    """A Node.js that can run the programs in ``node``."""

    node: str

    @classmethod
    def find(cls) -> "NodeToolchain":
        """Install what is missing; without Node.js skip the test, or fail it in CI."""
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            give_up("node and npm must be on the PATH")
        _install(npm)
        return cls(node)

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line that runs a program."""
        return [self.node, str(PROJECT / program), *arguments]


def _install(npm: str) -> None:
    """Install the locked packages, once for every version of the lock file."""
    digest = hashlib.sha256((PROJECT / "package-lock.json").read_bytes()).hexdigest()
    MODULES.mkdir(exist_ok=True)
    # Beside the directory, which the installation makes anew.
    with (PROJECT / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = MODULES / f".installed-{digest[:16]}"
        if marker.exists():
            return
        done = subprocess.run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            give_up(f"npm cannot get the packages:\n{done.stderr[-2000:]}")
        marker.touch()
