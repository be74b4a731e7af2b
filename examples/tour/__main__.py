"""The tour, step by step: ``make demo``, or ``python -m examples.tour --out DIRECTORY``."""

import argparse
import asyncio
import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from examples.tour import shop, traffic
from examples.tour.shown import FLINTMQ, RunCommand, Shown, StepFailedError, run_as_process

ORDER_COUNT: Final = 200_000
PAYMENT_COUNT: Final = 60_000
# Reminders and second tries come within seconds, so that the tour need not wait for minutes.
DELAY_LEVELS: Final = "1s 2s 1s 1s 1s 2s 2s"
STOP_S: Final = 60
MARK: Final = ".flintmq-tour"
"""A file that says that a folder was made by the tour."""

BEST_CITIES: Final = """
SELECT get_json_object(string(body), '$.city') AS city,
       count(*) AS orders,
       round(sum(get_json_object(string(body), '$.amount')) / 100) AS revenue
FROM messages WHERE topic = 'orders' GROUP BY city ORDER BY revenue DESC
"""
DEAD_LETTERS: Final = """
SELECT topic, keys, reconsumeTimes, string(body) AS payment
FROM messages WHERE topic LIKE '%DLQ%' ORDER BY keys LIMIT 5
"""
BY_METHOD: Final = """
SELECT tags AS method, get_json_object(string(body), '$.order') AS order,
       cast(get_json_object(string(body), '$.amount') AS long) AS cents
FROM messages WHERE tags <> 'voucher'
"""


@contextlib.contextmanager
def cluster(data: Path) -> Iterator[str]:
    """Run a name server and a broker as processes; give the address of the name server."""
    command = [FLINTMQ, "serve", "--data", str(data), "--namesrv-port", "0", "--broker-port", "0"]
    command += ["--set", f"messageDelayLevel={DELAY_LEVELS}"]
    with (data.parent / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        found = re.search(r"namesrv=(\S+)", ready)
        if found is None:
            raise StepFailedError(f"the cluster did not start: {ready!r}, see serve.log")
        yield found[1]
    finally:
        process.terminate()
        code = process.wait(STOP_S)
        process.stdout.close()
    if code:
        raise StepFailedError(f"the cluster ended with {code}, see serve.log")


async def trade(shown: Shown, namesrv: str, order_count: int, payment_count: int) -> None:
    """Let the shop do its business."""
    with shown.step("Producers send orders in batches, then payments one by one"):
        began = time.monotonic()
        sent_orders = await traffic.send_orders(namesrv, order_count)
        shown.say(f"{sent_orders:,} orders, {_rate(sent_orders, began)}")
        began = time.monotonic()
        sent = await traffic.send_payments(namesrv, payment_count)
        count = sent.payments + sent.reminders
        shown.say(
            f"{sent.payments:,} payments, {sent.reminders:,} reminders to come later, "
            f"{_rate(count, began)}"
        )
        sent.orders = sent_orders
    with shown.step("Three groups consume them; some payments are declined and tried again"):
        began = time.monotonic()
        async with traffic.consumers(namesrv) as consumed:
            await consumed.until(sent)
        count = consumed.orders + consumed.payments + consumed.reminders
        shown.say(
            f"{consumed.orders:,} orders packed, {consumed.reminders:,} reminders sent, "
            f"{consumed.payments:,} payments booked: {consumed.cents / 100:,.2f} in all, "
            f"{_rate(count, began)}"
        )
        shown.say(
            f"{sent.declined} payments failed {traffic.TRIES_MAX + 1} times "
            f"and are dead letters now"
        )


def analyse(shown: Shown, work: Path, namesrv: str) -> None:
    """Do with the data of the shop what only FlintMQ does, while the cluster runs."""
    store, archive = str(work / "data" / "store"), str(work / "archive")
    with shown.step("Is the store whole? Spark reads all of it"):
        shown.command("pipeline", "verify", store, "--delay-levels", DELAY_LEVELS)
    with shown.step("SQL over the store: the best cities, the dead letters"):
        shown.command("pipeline", "query", store, _line(BEST_CITIES))
        shown.command("pipeline", "query", store, _line(DEAD_LETTERS))
    with shown.step("How the topics are doing, with a picture"):
        shown.command("pipeline", "stats", store, "--plot", str(work / "stats.html"))
    with shown.step("Archive to Parquet, by topic and day"):
        shown.command("pipeline", "archive", store, "--to", archive)
    with shown.step("A stream follows the live topic and lands what it makes of it"):
        shown.command(
            "pipeline",
            "stream",
            namesrv,
            "--topic",
            shop.PAYMENTS,
            "--to",
            str(work / "stream"),
            "--sql",
            _line(BY_METHOD),
            "--available-now",
            "--option",
            "startingOffsets=earliest",
        )
        landed = pq.read_table(work / "stream", columns=["cents"])
        shown.say(f"{landed.num_rows:,} payments landed as Parquet")


def _make_empty(work: Path) -> None:
    """Make the folder of the tour; one of an earlier tour is emptied, any other is left alone."""
    if work.exists() and any(work.iterdir()):
        if not (work / MARK).exists():
            raise StepFailedError(f"{work} holds something that is not of a tour")
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    (work / MARK).touch()


def _line(sql: str) -> str:
    return " ".join(sql.split())


def _rate(count: int, began: float) -> str:
    return f"{count / max(time.monotonic() - began, 1e-3):,.0f} a second"


def run(
    work: Path,
    order_count: int,
    payment_count: int,
    *,
    run_command: RunCommand = run_as_process,
) -> None:
    """Take the tour; everything it makes is in ``work``."""
    _make_empty(work)
    shown = Shown(work, run_command)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        with shown.step("A cluster: a name server and a broker"):
            namesrv = stack.enter_context(cluster(work / "data"))
            shown.say(f"name server at {namesrv}, store in data/store")
        asyncio.run(trade(shown, namesrv, order_count, payment_count))
        analyse(shown, work, namesrv)
    print(f"\nDone in {time.monotonic() - began:.0f} s. Look at {work}:")
    for path in sorted(work.iterdir()):
        if path.name != MARK:
            print(f"    {path.name}")


def main() -> int:
    """Take the tour as the command line says."""
    parser = argparse.ArgumentParser(prog="examples.tour", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".run/demo"))
    parser.add_argument("--orders", type=int, default=ORDER_COUNT)
    parser.add_argument("--payments", type=int, default=PAYMENT_COUNT)
    options = parser.parse_args()
    try:
        run(options.out.resolve(), options.orders, options.payments)
    except StepFailedError as error:
        print(f"the tour ended early: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
