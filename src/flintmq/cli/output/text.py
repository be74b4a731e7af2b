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


def time_text(milliseconds: int | None, zone: datetime.tzinfo = datetime.UTC) -> str:
    """Return a time with its offset, to the millisecond; a number that is no time stays one."""
    if milliseconds is None:
        return "-"
    try:
        seconds, rest = divmod(milliseconds, 1000)
        moment = datetime.datetime.fromtimestamp(seconds, tz=zone)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    return moment_text(moment.replace(microsecond=rest * 1000), zone)


def moment_text(moment: datetime.datetime, zone: datetime.tzinfo) -> str:
    """Return a moment in a zone with its offset, to the millisecond or finer; ``Z`` is UTC."""
    local = moment.astimezone(zone)
    text = local.replace(tzinfo=None).isoformat(timespec="microseconds").removesuffix("000")
    offset = local.isoformat()[len(local.replace(tzinfo=None).isoformat()) :]
    return text + ("Z" if offset == "+00:00" else offset)


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
