"""One record of a server's log is one line."""

import json
import logging
import sys
from datetime import datetime
from typing import Any

import pytest

from flintmq.cli.servers.log_lines import (
    INDENT,
    MESSAGE_LENGTH_MAX,
    JsonFormatter,
    OneLineFormatter,
    area_of,
    one_line,
)

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


# -- JSON ---------------------------------------------------------------------------------------


def members(message: str, *args: object, error: BaseException | None = None) -> dict[str, Any]:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord(
        "flintmq.store.log.commit_log", logging.WARNING, __file__, 1, message, args, info
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert line.isascii()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_record_in_json_has_its_area_its_event_and_its_fields() -> None:
    found = members("store flag set: flag=%s reason=%s percent=%d", "disk full", FORGED, 97)
    assert found["level"] == "warning"
    assert found["area"] == "store"
    assert found["event"] == "store flag set"
    assert found["fields"] == {"flag": "disk full", "reason": FORGED, "percent": 97}
    assert found["message"].startswith("store flag set: flag=disk full reason=x\n2026")


@pytest.mark.parametrize(
    ("message", "args", "event", "fields"),
    [
        ("ready", (), "ready", None),
        ("%s: cause=%s ms=%d", ("took long", "x", 5), "took long: cause=x ms=5", 2),
        ("100%% done: of=%s", ("all",), "100% done: of=all", 1),
        ("half \ud800: a=%s", ("\ud800",), "half \ud800", 1),
        ("one: %s", ({"a": 1},), "one", None),
    ],
)
def test_messages_of_every_kind_become_json(
    message: str, args: tuple[object, ...], event: str, fields: int | None
) -> None:
    found = members(message, *args)
    assert found["event"] == event
    assert len(found.get("fields", ())) == (fields or 0)


def test_an_error_is_a_member_of_its_record() -> None:
    with pytest.raises(ValueError, match="2026") as caught:
        int(FORGED)
    found = members("request failed: code=%d", 10, error=caught.value)
    assert "Traceback" in found["error"]
    assert found["fields"] == {"code": 10}


def test_times_have_the_offset_of_the_machine() -> None:
    shown = members("x")["time"]
    assert datetime.fromisoformat(shown).tzinfo is not None
    assert datetime.fromisoformat(formatted("x").split(" ")[0]).tzinfo is not None


def test_the_area_of_a_stranger_is_its_name() -> None:
    assert area_of("asyncio") == "asyncio"
    assert area_of("flintmq.broker.waiting.held_pulls") == "broker"
