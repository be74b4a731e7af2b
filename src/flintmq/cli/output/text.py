"""Text from files and from the network, made fit for a terminal."""

import datetime


def printable(text: str) -> str:
    """Return ``text`` with everything escaped that a terminal could take for a command."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def time_text(milliseconds: int | None) -> str:
    """Return a time in UTC, to the millisecond; a number that is no time stays a number."""
    if milliseconds is None:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(milliseconds / 1000, tz=datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def local_time(milliseconds: int) -> str:
    """Return a time in the zone of this machine, with its offset, to the millisecond."""
    try:
        moment = datetime.datetime.fromtimestamp(milliseconds / 1000, tz=datetime.UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds")


def size_text(size: int) -> str:
    """Return a number of bytes in the largest unit that leaves a number above one."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
