"""Text for terminals."""

import pytest

from flintmq.cli.output.text import plural, printable, size_text, time_text


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert printable("plain \u8ba2\u5355 text") == "plain \u8ba2\u5355 text"
    assert printable("a\x1b[31mb") == "a\\x1b[31mb"
    assert printable("a\r\nb\tc") == "a\\r\\nb\\tc"
    assert printable("\x9bm \u202e \udc80") == "\\x9bm \\u202e \\udc80"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (1_700_000_000_456, "2023-11-14T22:13:20.456Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (None, "-"),
        (1 << 62, str(1 << 62)),
        (-(1 << 62), str(-(1 << 62))),
    ],
)
def test_times_are_utc(milliseconds: int | None, text: str) -> None:
    assert time_text(milliseconds) == text


def test_sizes_and_counts() -> None:
    assert size_text(0) == "0 bytes"
    assert size_text(1023) == "1023 bytes"
    assert size_text(1536) == "1.5 KiB"
    assert size_text(5 << 40) == "5.0 TiB"
    assert plural(1, "file") == "1 file"
    assert plural(2, "file") == "2 files"
