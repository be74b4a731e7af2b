"""``python -m soak.replication``: many lives of a pair, simulated by seeds and as processes."""

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.kits.replication.chaos import run_pair
from tests.kits.replication.simulation import EVENT_COUNT, Simulation


def main() -> int:
    """Run, print what has failed with its seed, and return 1 if anything has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="simulated lives of a pair")
    parser.add_argument("--runs", type=int, default=0, help="pairs of processes, with Java clients")
    parser.add_argument("--faults", type=int, default=6, help="faults in each of these")
    parser.add_argument("--first", type=int, default=None, help="the first seed")
    options = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 32) if options.first is None else options.first
    print(f"first seed {first}", flush=True)
    failed = simulate(first, options.seeds) + run_processes(first, options.runs, options.faults)
    print("all held" if not failed else f"{failed} failed", flush=True)
    return 1 if failed else 0


def simulate(first: int, count: int) -> int:
    """Play ``count`` lives; return how many failed."""
    failed = acknowledged = 0
    began = time.process_time()
    for seed in range(first, first + count):
        simulation = Simulation(seed)
        try:
            simulation.run(EVENT_COUNT)
        except Exception:
            failed += 1
            print(f"seed {seed} failed; again: python -m soak.replication --first {seed} --seeds 1")
            traceback.print_exc()
        acknowledged += len(simulation.acknowledged)
    if count:
        spent = time.process_time() - began
        print(
            f"{count} lives, {acknowledged} acknowledged messages, {spent:.0f} s of processor time"
        )
    return failed


def run_processes(first: int, count: int, fault_count: int) -> int:
    """Run ``count`` pairs of processes; return how many failed."""
    failed = 0
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory(prefix="flintmq-pair-") as directory:
            try:
                faults = run_pair(Path(directory), seed, fault_count)
                print(f"pair {seed}: {', '.join(faults)}", flush=True)
            except Exception:
                failed += 1
                print(f"pair {seed} failed", flush=True)
                traceback.print_exc()
    return failed


if __name__ == "__main__":
    sys.exit(main())
