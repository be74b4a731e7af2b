"""The official mqadmin, many commands in one Java process."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kits.processes.java_process import JavaProcessError
from tests.kits.processes.java_toolchain import JavaToolchain

_FLAGS: Final = ("-Xms64m", "-Xmx256m", "-Drocketmq.client.logUseSlf4j=true")


class JavaAdmin:
    """Runs commands of mqadmin and returns what they print, while the context lasts."""

    def __init__(self, toolchain: JavaToolchain, home: Path) -> None:
        self._home = home
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "logback_tools.xml").write_text("<configuration/>")
        flags = (
            *_FLAGS,
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            "-Duser.timezone=UTC",
        )
        self._command = toolchain.command("AdminCommands", flags=flags)

    def __enter__(self) -> Self:
        self._errors = (self._home / "admin.err").open("w+")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=self._home,
        )
        return self

    def __call__(self, *arguments: str) -> str:
        """Run one command."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(arguments) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith('{"output"'):
                return str(json.loads(line)["output"])
        self._errors.seek(0)
        raise JavaProcessError(f"mqadmin has ended:\n{self._errors.read()[-4000:]}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()
