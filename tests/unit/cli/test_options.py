"""Values of options."""

import click
import pytest

from flintmq.cli.option_types import parse_bound


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1700000000456", 1_700_000_000_456),
        ("2023-11-14T22:13:20.456Z", 1_700_000_000_456),
        ("2023-11-14 22:13:20.456", 1_700_000_000_456),
        ("2023-11-15T06:13:20.456+08:00", 1_700_000_000_456),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_are_milliseconds_or_iso(text: str, expected: int) -> None:
    assert parse_bound(text, "--from", is_offset=False) == expected


def test_with_a_queue_only_offsets_are_taken() -> None:
    assert parse_bound("17", "--from", is_offset=True) == 17
    assert parse_bound(None, "--from", is_offset=True) is None
    with pytest.raises(click.BadParameter, match="queue offset"):
        parse_bound("2023-11-14", "--from", is_offset=True)


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "\u0661"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_bound(text, "--from", is_offset=False)
