"""``flintmq admin bench``: how fast a cluster is, seen from here."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from flintmq.admin.benchmarks import (
    BenchFigures,
    BenchMeter,
    BenchPlan,
    bench_consumer,
    bench_latency,
    bench_producer,
)
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport
from flintmq.cli.admin.place_options import topic_option
from flintmq.cli.exit_codes import EXIT_INTERRUPTED, EXIT_PARTLY, EXIT_PROBLEMS
from flintmq.cli.output.plain_values import plain

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin

PROGRESS_S: Final = 1.0
KINDS: Final = {
    "producer": (bench_producer, 64, 1),
    "consumer": (bench_consumer, 1, 32),
    "latency": (bench_latency, 16, 1),
}
"""What each kind does, its requests in flight and messages of a request, unless given."""


@admin_command("bench")
@click.argument("kind", type=click.Choice(list(KINDS)))
@topic_option
@click.option("--seconds", type=click.FloatRange(0.1), default=10.0, show_default=True)
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
@click.option("--size", type=click.IntRange(0), default=128, show_default=True, help="Of a body.")
@click.option("--in-flight", type=click.IntRange(1), help="Requests at a time.")
@click.option("--batch", type=click.IntRange(1), help="Messages of one request.")
@click.option("--rate", type=click.FloatRange(min=0.1), help="Messages a second, at most.")
@click.option("--progress/--no-progress", default=None, help="A line a second on stderr.")
async def bench(
    admin: AsyncAdmin,
    *,
    kind: str,
    topic: str,
    seconds: float,
    count: int | None,
    size: int,
    in_flight: int | None,
    batch: int | None,
    rate: float | None,
    progress: bool | None,
) -> CommandReport:
    """Measure how fast a cluster takes or gives messages, or how long one is on its way.

    producer sends, consumer pulls what is there, latency does both at once.  producer and latency
    send messages to the topic.  The load comes from this one process, which may be slower than
    the brokers.
    """
    work, usual_in_flight, usual_batch = KINDS[kind]
    plan = BenchPlan(
        topic=topic,
        seconds=seconds,
        count_max=count,
        size=size,
        in_flight=in_flight or usual_in_flight,
        batch_count=batch or usual_batch,
        rate=rate,
    )
    meter = BenchMeter(kind)
    has_progress = sys.stderr.isatty() if progress is None else progress
    is_interrupted = False
    async with _progress(meter) if has_progress else contextlib.nullcontext():
        try:
            await work(admin.client, plan, meter)
        except asyncio.CancelledError:
            is_interrupted = True  # By Ctrl-C: what was measured so far is shown all the same.
    figures = meter.figures()
    members = plain(figures)
    assert isinstance(members, dict)
    latency = members.pop("latency")
    flat = {**members, **{f"{name}Ms": value for name, value in latency.items()}}
    code = None
    if is_interrupted:
        code = EXIT_INTERRUPTED
    elif figures.failed:
        code = EXIT_PARTLY if figures.messages else EXIT_PROBLEMS
    return CommandReport(
        rows=[figures],
        table_rows=[{"figure": name, "value": value} for name, value in flat.items()],
        failures=[] if meter.last_error is None else [(topic, meter.last_error)],
        exit_code=code,
    )


@asynccontextmanager
async def _progress(meter: BenchMeter) -> AsyncIterator[None]:
    """Tell once a second how it goes; on a terminal each line stands in place of the last."""
    is_terminal = sys.stderr.isatty()

    async def tell() -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            line = progress_line(meter.figures())
            click.echo(f"\r\x1b[K{line}" if is_terminal else line, err=True, nl=not is_terminal)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        if is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)


def progress_line(figures: BenchFigures) -> str:
    """Return one line about a benchmark under way."""
    failed = f", {figures.failed:,} failed" if figures.failed else ""
    latency = figures.latency
    return (
        f"{figures.seconds:.0f} s: {figures.messages:,} messages, {figures.rate:,.0f}/s, "
        f"{figures.mib_per_second:.1f} MiB/s, p50 {latency.p50:.1f} ms, p99 {latency.p99:.1f} ms"
        f"{failed}"
    )
