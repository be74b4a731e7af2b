"""Levels of the log by area: what may be written, and that loggers follow."""

import logging

import pytest

from flintmq.broker.config import BrokerConfig
from flintmq.namesrv.config import NamesrvConfig
from flintmq.settings import ConfigError
from flintmq.settings.log_levels import AREAS, LogLevels, parse_log_levels


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", {}),
        ("debug", {"": "debug"}),
        ("INFO, store=debug ,remoting.tls_listener=Error", None),
        ("store=debug,,", {"store": "debug"}),
    ],
)
def test_a_text_names_levels_by_area(text: str, levels: dict[str, str] | None) -> None:
    expected = {"": "info", "store": "debug", "remoting.tls_listener": "error"}
    assert parse_log_levels(text) == (expected if levels is None else levels)


@pytest.mark.parametrize(
    "text",
    [
        *("loud", "store", "store=", "=debug", "stor=debug", "store=debug,store=info", "a=b=c"),
        *("store..log=debug", "store.Log=debug", "asyncio=debug", "store=debug;info"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    for kind in (BrokerConfig, NamesrvConfig):
        with pytest.raises(ConfigError, match="AREA=LEVEL"):
            kind.from_properties({"logLevels": text})


def test_more_areas_than_anybody_needs_are_refused() -> None:
    with pytest.raises(ValueError, match="store"):
        parse_log_levels(",".join(f"store.a{number}=debug" for number in range(33)))


def test_every_area_is_a_package() -> None:
    from importlib.util import find_spec

    assert all(find_spec(f"flintmq.{area}") is not None for area in AREAS)


def test_loggers_follow_and_get_back_what_they_had() -> None:
    store, remoting = (logging.getLogger(f"flintmq.{name}") for name in ("store", "remoting"))
    before = store.level, remoting.level
    with LogLevels.kept() as levels:
        levels.apply("store=debug")
        assert store.getEffectiveLevel() == logging.DEBUG
        levels.apply("remoting=error")
        assert (store.level, remoting.level) == (before[0], logging.ERROR)
        with pytest.raises(ValueError, match="nonsense"):
            levels.apply("nonsense")
        assert remoting.level == logging.ERROR, "a wrong text changes nothing"
    assert (store.level, remoting.level) == before
