"""What the tour shows in the terminal: steps, commands, answers and times."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

LINES_MAX: Final = 14
FLINTMQ: Final = str(Path(sys.executable).with_name("flintmq"))


class StepFailedError(Exception):
    """A command of the tour did not do its work."""


class Answer(NamedTuple):
    """What a command has said, and its exit code."""

    code: int
    output: str
    errors: str


RunCommand: TypeAlias = Callable[[Sequence[str]], Answer]


def run_as_process(arguments: Sequence[str]) -> Answer:
    """Run ``flintmq`` as one would by hand."""
    done = subprocess.run([FLINTMQ, *arguments], capture_output=True, text=True, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


class Shown:
    """Prints numbered steps; ``run_command`` is how the commands of a step are run."""

    def __init__(self, work: Path, run_command: RunCommand = run_as_process) -> None:
        self._work = work
        self._run_command = run_command
        self._number = 0

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step, and tell afterwards how long it took."""
        self._number += 1
        print(f"\n[{self._number}] {title}", flush=True)
        began = time.monotonic()
        yield
        self.say(f"took {time.monotonic() - began:.1f} s")

    def say(self, text: str) -> None:
        """Print one line of a step."""
        print(f"    {text}", flush=True)

    def command(self, *arguments: str, lines_max: int = LINES_MAX) -> str:
        """Run ``flintmq`` with these arguments, and show what it says."""
        shown = " ".join(self._short(argument) for argument in arguments)
        self.say(f"$ flintmq {shown}")
        answer = self._run_command(arguments)
        if answer.code:
            raise StepFailedError(
                f"flintmq {shown} ended with {answer.code}\n{answer.output}{answer.errors}"
            )
        self._show(answer.output.splitlines(), lines_max)
        return answer.output

    def _short(self, argument: str) -> str:
        text = argument.replace(f"{self._work}/", "")
        return f'"{text}"' if " " in text else text

    def _show(self, lines: Sequence[str], lines_max: int) -> None:
        for line in lines[:lines_max]:
            self.say(f"  {line}".replace(f"{self._work}/", ""))
        if len(lines) > lines_max:
            self.say(f"  … {len(lines) - lines_max} more lines")
