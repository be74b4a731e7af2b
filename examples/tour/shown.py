"""What the tour shows in the terminal: steps, commands, answers and times."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LINES_MAX: Final = 14
FLINTMQ: Final = str(Path(sys.executable).with_name("flintmq"))


class StepFailedError(Exception):
    """A command of the tour did not do its work."""


class Shown:
    """Prints numbered steps."""

    def __init__(self, work: Path) -> None:
        self._work = work
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
        """Run ``flintmq`` with these arguments, as one would by hand, and show what it says."""
        shown = " ".join(self._short(argument) for argument in arguments)
        self.say(f"$ flintmq {shown}")
        done = subprocess.run([FLINTMQ, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise StepFailedError(
                f"flintmq {shown} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )
        self._show(done.stdout.splitlines(), lines_max)
        return done.stdout

    def _short(self, argument: str) -> str:
        text = argument.replace(f"{self._work}/", "")
        return f'"{text}"' if " " in text else text

    def _show(self, lines: Sequence[str], lines_max: int) -> None:
        for line in lines[:lines_max]:
            self.say(f"  {line}".replace(f"{self._work}/", ""))
        if len(lines) > lines_max:
            self.say(f"  … {len(lines) - lines_max} more lines")
