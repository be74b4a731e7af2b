import pytest

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import DelayLevelsError

LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
EXPECTED_SECONDS = [
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
]


def test_the_default_levels_are_java_s() -> None:
    assert LEVELS.max_level == 18
    assert [LEVELS.delay_ms(level) for level in range(1, 19)] == [
        seconds * 1000 for seconds in EXPECTED_SECONDS
    ]


@pytest.mark.parametrize(
    ("level", "due"), [(1, 1700000001456), (3, 1700000010456), (18, 1700007200456)]
)
def test_a_message_is_due_its_delay_after_it_was_stored(level: int, due: int) -> None:
    assert LEVELS.due_time(level, 1700000000456) == due


def test_a_level_above_the_highest_is_the_highest() -> None:
    assert LEVELS.delay_ms(19) == LEVELS.delay_ms(18)


def test_a_level_there_is_not_waits_one_second() -> None:
    assert LEVELS.delay_ms(0) == LEVELS.delay_ms(-1) == 1000
    assert DelayLevels.parse("").delay_ms(1) == 1000


def test_all_units_are_known() -> None:
    assert DelayLevels.parse("1s 2m 3h 4d").delays_ms == (1000, 120_000, 10_800_000, 345_600_000)


@pytest.mark.parametrize(
    "text", ["1", "s", "1x", "1s  2s", " 1s", "1s ", "-1s", "1.5s", "1s,2s", "9999999999s"]
)
def test_an_item_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(DelayLevelsError):
        DelayLevels.parse(text)


def test_more_levels_than_anyone_needs_are_refused() -> None:
    with pytest.raises(DelayLevelsError, match="limit"):
        DelayLevels.parse(" ".join(["1s"] * 1025))
