"""One piece of work of ``bench.client``: ``python -m bench.client_case MODULE WORK ADDRESS …``.

It runs in a process of its own, so that neither client feels what the other leaves behind, and
prints what it took as JSON.
"""

import importlib
import json
import os
import sys
import time
from typing import Final, Self

BODY: Final = b"x" * 128
BATCH_COUNT: Final = 16
"""Batches of the C++ client fail from 4 KiB on, the size from which it compresses."""

IN_FLIGHT: Final = 256
BATCHES_IN_FLIGHT: Final = 8


class Stopwatch:
    """Measures time by the clock and of the processor, of all threads."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> Self:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        return self

    def stop(self) -> None:
        """Measure up to here."""
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() - self._cpu_began

    def __exit__(self, *_: object) -> None:
        if not self.seconds:
            self.stop()


def main() -> None:
    """Do the work that the command line names."""
    module, work, namesrv, topic, count = sys.argv[1:]
    watch = getattr(importlib.import_module(module), work)(namesrv, topic, int(count))
    print(json.dumps({"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds}), flush=True)
    # The C++ client may abort the process while that ends.
    os._exit(0)


if __name__ == "__main__":
    main()
