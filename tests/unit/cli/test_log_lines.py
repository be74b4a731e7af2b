"""One record of a server's log is one line."""

import logging
import sys

import pytest

from flintmq.cli.servers.log_lines import INDENT, MESSAGE_LENGTH_MAX, OneLineFormatter, one_line

FORGED = "x\n2026-01-01T00:00:00.000 ERROR flintmq.store: all is lost"


def formatted(message: str, *args: object, error: BaseException | None = None) -> str:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("flintmq.t", logging.INFO, __file__, 1, message, args, info)
    return OneLineFormatter().format(record)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("Grüße 消息", "Grüße 消息"),
        ("a\nb\r\nc", r"a\nb\r\nc"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x85\x9b1m", r"\x85\x9b1m"),
        ("a\u2028b\u202ec", r"a\u2028b\u202ec"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_control_characters_are_written_as_escapes(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_name_cannot_forge_a_record() -> None:
    line = formatted("group deleted: group=%s", FORGED)
    assert "\n" not in line
    assert r"group=x\n2026-01-01" in line


def test_a_traceback_is_indented_with_the_text_of_its_error() -> None:
    with pytest.raises(ValueError, match="2026") as caught:
        int(FORGED)
    lines = formatted("request failed: code=%d", 10, error=ValueError(FORGED))
    first, *more = lines.split("\n")
    _, *deep = formatted("request failed", error=caught.value).split("\n")
    assert first.endswith("request failed: code=10")
    assert len(more) == 2
    assert len(deep) > 2
    assert all(line.startswith(INDENT) for line in more + deep)


def test_a_long_message_is_cut() -> None:
    line = formatted("%s", "x" * (MESSAGE_LENGTH_MAX + 5))
    assert line.endswith("x... (5 more characters)")


def test_every_line_can_be_written() -> None:
    for code in range(sys.maxunicode + 1):
        shown = one_line(chr(code))
        assert len(shown.splitlines()) == 1
        shown.encode()
