"""What went wrong in a job, in one line: Spark tells it in pages."""

import re
from pathlib import Path
from typing import Final

from flintmq.errors import FlintError

REASON_LENGTH_MAX: Final = 2000
# The last line of a Python traceback, as Spark quotes it: the class with its module, the words.
_RAISED: Final = re.compile(
    r"^\s*(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<words>.+)$", re.M
)
_CLASS: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")


class JobError(FlintError):
    """A job cannot do what it was asked to."""


class SqlError(JobError):
    """A query is no SQL, or speaks of what there is not."""


class LoggedError(JobError):
    """Spark has failed; what it said is in a log file."""

    def __init__(self, reason: str, log_file: Path) -> None:
        super().__init__(f"{reason} (Spark's log: {log_file})")
        self.reason = reason
        self.log_file = log_file


def reason_of(error: BaseException) -> str:
    """Return the reason of an error of Spark on one line.

    An error of a Python worker arrives as text with its traceback.  What FlintMQ itself raised
    there is the reason; else the last error of the traceback is.
    """
    text = _words_of(error)
    raised = list(_RAISED.finditer(text))
    ours = [match["words"] for match in raised if match["kind"].startswith("flintmq.")]
    if ours:
        return _line(ours[-1])
    if raised and "Traceback" in text:
        return _line(f"{raised[-1]['kind']}: {raised[-1]['words']}")
    return _line(_first_line(text) or repr(error))


def _words_of(error: BaseException) -> str:
    """Return what an error says; one of Java has to ask Java, which may have ended by then."""
    try:
        return str(error)
    except Exception as unanswered:
        return f"{type(error).__name__}: {unanswered}"


def _first_line(text: str) -> str:
    """Return the first line that says something, without the marks Spark puts around it."""
    lines = (line.strip() for line in text.splitlines())
    return _STATE.sub("", _CLASS.sub("", next(filter(None, lines), ""))).rstrip(";: ")


def _line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= REASON_LENGTH_MAX else f"{joined[:REASON_LENGTH_MAX]}…"
