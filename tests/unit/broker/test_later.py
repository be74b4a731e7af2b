"""What is loaded beside the work."""

import threading

import pytest

from flintmq.broker.later import Later


def test_it_is_loaded_once_it_was_asked_for_often_enough() -> None:
    loads: list[str] = []

    def load() -> str:
        loads.append(threading.current_thread().name)
        return "it"

    later = Later(load, ask_count=3)
    assert [later.get(), later.get()] == [None, None]
    later.wait()
    assert loads == []
    later.get()
    later.wait()
    assert later.get() == later.get() == "it"
    assert loads == ["flintmq-loads"]


def test_nobody_waits_for_it() -> None:
    may_end = threading.Event()

    def load() -> str:
        assert may_end.wait(60)
        return "it"

    later = Later(load, ask_count=1)
    assert later.get() is None
    assert later.get() is None
    may_end.set()
    later.wait()
    assert later.get() == "it"


@pytest.mark.parametrize("error", [ImportError("no numba"), ValueError("no compiler")])
def test_what_cannot_be_loaded_is_done_without_and_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> str:
        raise error

    later = Later(load, ask_count=1)
    with caplog.at_level("INFO"):
        for _ in range(3):
            assert later.get() is None
            later.wait()
    assert len(caplog.records) == 1
    assert str(error) in caplog.text
