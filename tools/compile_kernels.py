"""Compiles the machine code of a broker ahead, so that its first start on a machine need not."""

import sys
from typing import Final

from flintmq.broker.pulling.pull_loading import COMPILED_PROGRAM as PULLS
from flintmq.broker.sending.send_fast_path import COMPILED_PROGRAM as SENDS
from flintmq.kernels.compile_ahead import compile_ahead
from flintmq.store.append_group.encoder_choice import COMPILED_PROGRAM as GROUPS
from flintmq.store.reading.read_engines import COMPILED_PROGRAM as READS
from flintmq.store.recovery.fast_walk import BULK_PROGRAM as RECOVERY

PROGRAMS: Final = (SENDS, PULLS, GROUPS, READS, RECOVERY)


def main() -> int:
    """Compile what was never compiled; return the exit code."""
    return 0 if all(compile_ahead(program) for program in PROGRAMS) else 1


if __name__ == "__main__":
    sys.exit(main())
