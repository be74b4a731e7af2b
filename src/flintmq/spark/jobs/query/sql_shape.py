"""What can be told of a query by its letters alone, before Spark is started, which takes seconds.

Spark's own parser has the last word.  Here only that is refused which no parser could take: a text
or a bracket that does not end, several statements, a first word that begins no query.
"""

import re
from typing import Final

from flintmq.spark.runtime.failures import SqlError

_FIRST_WORDS: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE"})
_COMMANDS: Final = "only a query can be asked: SELECT, WITH, VALUES or TABLE"
_CLOSING: Final = {")": "(", "]": "[", "}": "{"}
_SHOWN_LENGTH: Final = 20

_TOKEN: Final = re.compile(
    r"""
    (?P<comment> --[^\n]* )
  | (?P<raw> (?<![A-Za-z0-9_])[rR](?:'[^']*'|"[^"]*") )
  | (?P<text> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
  | (?P<name> `(?:[^`]|``)*` )
  | (?P<open_comment> /\* )
  | (?P<open_text> ['"`] )
  | (?P<bracket> [()\[\]{}] )
  | (?P<end> ; )
  | (?P<word> [^\W\d]\w* )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")


def check_query_shape(sql: str) -> None:
    """Raise SqlError for what cannot be one query."""
    first = _check_shape(sql, "the query")
    if first is None:
        raise SqlError("the query is empty")
    if first != "(" and first.upper() not in _FIRST_WORDS:
        raise SqlError(f"{_COMMANDS}, not {first[:_SHOWN_LENGTH]}")


def check_condition_shape(condition: str) -> None:
    """Raise SqlError for what cannot be a condition."""
    _check_shape(condition, "the condition")


def _check_shape(sql: str, noun: str) -> str | None:
    """Return the first word or bracket; raise SqlError for what does not end, or ends too soon."""
    first: str | None = None
    opened: list[tuple[str, int]] = []
    is_ended = False
    at = 0
    while (match := _TOKEN.search(sql, at)) is not None:
        is_blank = not sql[at : match.start()].strip()
        kind, at = match.lastgroup, match.end()
        if kind == "open_comment":
            at = _comment_end(sql, match.start(), noun)
        if kind in ("comment", "open_comment"):
            if not is_blank:
                first, is_ended = _follows(first, is_ended, "…", noun)
            continue
        if kind == "open_text":
            raise SqlError(f"{noun} has a {match[0]} that does not end{_place(sql, match.start())}")
        if kind == "end":
            if opened:
                raise SqlError(f"{noun} has a {opened[-1][0]} that nothing closes")
            is_ended = first is not None or not is_blank
            continue
        first, is_ended = _follows(first, is_ended, match[0] if is_blank else "…", noun)
        if kind == "bracket":
            _take_bracket(opened, match, sql, noun)
    if sql[at:].strip():
        first, is_ended = _follows(first, is_ended, "…", noun)
    if opened:
        raise SqlError(
            f"{noun} has a {opened[-1][0]} that nothing closes{_place(sql, opened[-1][1])}"
        )
    return first


def _follows(first: str | None, is_ended: bool, token: str, noun: str) -> tuple[str, bool]:
    if is_ended:
        raise SqlError(f"{noun} is several statements: there is more behind its ;")
    return (token if first is None else first), False


def _take_bracket(opened: list[tuple[str, int]], match: re.Match[str], sql: str, noun: str) -> None:
    letter = match[0]
    if letter not in _CLOSING:
        opened.append((letter, match.start()))
    elif not opened or opened.pop()[0] != _CLOSING[letter]:
        raise SqlError(f"{noun} has a {letter} that closes nothing{_place(sql, match.start())}")


def _comment_end(sql: str, start: int, noun: str) -> int:
    """Return where a comment ends; comments may stand in comments."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(sql, start):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise SqlError(f"{noun} has a /* that does not end{_place(sql, start)}")


def _place(sql: str, at: int) -> str:
    """Return where something stands: by line and column, counted from 1."""
    return f" (line {sql.count(chr(10), 0, at) + 1}, column {at - sql.rfind(chr(10), 0, at)})"
