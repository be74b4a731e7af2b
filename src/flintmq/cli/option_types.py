"""Options that several commands share, and the values they take."""

import datetime
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import click

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import DelayLevelsError
from flintmq.offline import SizeOptions, StoreLayout, find_store
from flintmq.offline.findings import DETAILS_MAX

Result = TypeVar("Result")

SHAPE_ADVICE: Final = (
    "the shape of the index files is unknown; give --hash-slots and --index-entries"
)
"""What an error of the libraries means on the command line."""

_SIZE = click.IntRange(min=1)


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The store that a command line names, which was not looked for yet."""

    directory: Path
    log_directories: tuple[Path, ...]
    sizes: SizeOptions

    def open(self) -> StoreLayout:
        """Find the store; NotAStoreError when there is none."""
        return find_store(self.directory, log_directories=self.log_directories, sizes=self.sizes)


def store_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the store directory, and what cannot always be detected about it.

    The command gets them as ``store``, a `StoreChoice`.
    """

    @functools.wraps(command)
    def with_store(
        *, directory: Path, log_directories: tuple[Path, ...], sizes: SizeOptions, **others: object
    ) -> Result:
        return command(store=StoreChoice(directory, log_directories, sizes), **others)

    decorated = size_options(with_store)
    for decorate in (
        click.option(
            "--commitlog",
            "log_directories",
            metavar="DIR",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Directory of the commit log, where it is not DIR/commitlog; repeatable.",
        ),
        click.argument("directory", metavar="DIR", type=click.Path(path_type=Path)),
    ):
        decorated = decorate(decorated)
    return decorated


def size_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the sizes of files; the command gets them as ``sizes``."""

    @functools.wraps(command)
    def with_sizes(
        *,
        log_file_size: int | None,
        queue_file_size: int | None,
        hash_slots: int | None,
        index_entries: int | None,
        **others: object,
    ) -> Result:
        sizes = SizeOptions(
            log_file_size=log_file_size,
            queue_file_size=queue_file_size,
            hash_slots=hash_slots,
            index_entries=index_entries,
        )
        return command(sizes=sizes, **others)

    decorated: Callable[..., Result] = with_sizes
    for decorate in reversed(_SIZE_OPTIONS):
        decorated = decorate(decorated)
    return decorated


_SIZE_OPTIONS: Final = (
    click.option(
        "--commitlog-file-size",
        "log_file_size",
        type=_SIZE,
        metavar="BYTES",
        help="Size of commit-log files; detected unless given.",
    ),
    click.option(
        "--queue-file-size",
        type=_SIZE,
        metavar="BYTES",
        help="Size of consume-queue files; detected unless given.",
    ),
    click.option(
        "--hash-slots",
        type=_SIZE,
        metavar="COUNT",
        help="Hash slots of an index file; detected unless given.",
    ),
    click.option(
        "--index-entries",
        type=_SIZE,
        metavar="COUNT",
        help="Entries of an index file; detected unless given.",
    ),
)


def _parse_delay_levels(
    context: click.Context, parameter: click.Parameter, text: str
) -> DelayLevels:
    try:
        return DelayLevels.parse(text)
    except DelayLevelsError as error:
        raise click.BadParameter(error.reason, context, parameter) from error


delay_levels_option = click.option(
    "--delay-levels",
    callback=_parse_delay_levels,
    default=DEFAULT_DELAY_LEVELS,
    metavar="LEVELS",
    help="The broker's messageDelayLevel, where it is not RocketMQ's default.",
)


extension_option = click.option(
    "--extension/--no-extension",
    default=None,
    help="Whether queues get an extension with filter bits, as a broker with "
    "enableConsumeQueueExt keeps it; else if the store has one.",
)


def verify_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add what a verification looks at and how much it tells."""
    for decorate in reversed(
        (
            click.option(
                "--details",
                "details_max",
                type=click.IntRange(min=1),
                default=DETAILS_MAX,
                show_default=True,
                help="How many findings of each kind to describe; the counts are always exact.",
            ),
            click.option(
                "--without-index",
                is_flag=True,
                help="Leave the key index out, for a broker with messageIndexEnable=false.",
            ),
        )
    ):
        command = decorate(command)
    return command


def parse_bound(text: str | None, option: str, *, is_offset: bool) -> int | None:
    """Return a queue offset, or a time in milliseconds given as such or in ISO 8601.

    A time without a zone is UTC.
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    if is_offset:
        raise click.BadParameter(f"with --queue a queue offset: {text!r}", param_hint=option)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        reason = f"neither milliseconds nor an ISO 8601 time: {text!r}"
        raise click.BadParameter(reason, param_hint=option) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)
