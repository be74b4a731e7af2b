"""``python -m soak``: run servers under load and faults for some minutes, and judge them."""

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from soak.java_peers import VERSION, JavaMissingError, find_java
from soak.plot import draw, panels
from soak.report import (
    DESCRIPTOR_BUDGET,
    MEMORY_BUDGET_MIB,
    as_text,
    summary,
    write_json,
)
from soak.run import Plan, Soak
from soak.volume import Volume, VolumeError, mounted

VOLUME_SIZE: Final = 2 << 30


def main() -> int:
    """Run, print, and return 1 if anything did not hold."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    left_out = []
    java = None
    if options.java:
        try:
            java = find_java()
        except JavaMissingError as error:
            left_out.append(f"Java clients: {error}")
    with contextlib.ExitStack() as stack:
        work = Path(tempfile.mkdtemp(prefix="flintmq-soak-"))
        logging.basicConfig(filename=work / "clients.log", level=logging.INFO)
        volume: Volume | None = None
        try:
            volume = stack.enter_context(mounted(work, VOLUME_SIZE))
        except VolumeError as error:
            left_out.append(f"full and slow disk: {error}")
        for text in left_out:
            print(f"left out: {text}", flush=True)
        plan = Plan(options.minutes * 60, seed, work, volume, java)
        soak = Soak(plan, say=lambda text: print(text, flush=True))
        asyncio.run(soak.run())
        about = {
            "seed": seed,
            "minutes": options.minutes,
            "volume": volume.kind if volume else "none",
            "Java clients": VERSION if java else "none",
            "left out": left_out,
        }
        found = summary(soak.measures, soak.oracle, soak.servers, about=about)
        write_json(options.out / "soak.json", found, soak.measures)
        drawn = panels(soak.measures, memory_mib=MEMORY_BUDGET_MIB, descriptors=DESCRIPTOR_BUDGET)
        title = f"FlintMQ, {options.minutes:g} minutes of faults (seed {seed})"
        draw(options.out / "soak.svg", title, drawn, soak.measures.faults)
        text = as_text(found)
        (options.out / "soak.txt").write_text(text + "\n")
        print(text)
        is_broken = bool(soak.oracle.violations) or (bool(left_out) and options.strict)
        if is_broken and volume is not None:
            # What was wrong can be looked at when the volume is gone.
            shutil.copytree(soak.store, work / "store", dirs_exist_ok=True)
    print(f"\n{'BROKEN' if is_broken else 'all held'}; figures and plot: {options.out}")
    if is_broken or options.keep:
        print(f"logs: {work}")
    else:
        shutil.rmtree(work)
    return 1 if is_broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, help="repeats the choice of faults")
    parser.add_argument("--out", type=Path, default=Path(".run/soak"))
    parser.add_argument("--no-java", dest="java", action="store_false")
    parser.add_argument("--strict", action="store_true", help="what is left out is a failure")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
