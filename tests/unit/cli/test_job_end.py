"""How a job ends that is told to."""

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from flintmq.cli.pipeline.job import ended_by_sigterm
from flintmq.cli.pipeline.job_frame import JobInterruptedError, told_shortly


def test_sigterm_ends_a_job_so_that_it_tidies_up(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def job() -> None:
        with ended_by_sigterm():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                signal.sigtimedwait([], 30)
            finally:
                scratch.rmdir()

    with pytest.raises(SystemExit) as ended:
        job()
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("frame", "number", "end"),
    [
        (ended_by_sigterm, signal.SIGTERM, SystemExit),
        (told_shortly, signal.SIGINT, JobInterruptedError),
    ],
)
def test_whatever_fails_after_a_signal_is_no_failure(
    frame: Callable[[], AbstractContextManager[None]],
    number: signal.Signals,
    end: type[BaseException],
) -> None:
    def job() -> None:
        with frame():
            try:
                os.kill(os.getpid(), number)
                signal.sigtimedwait([], 30)
            finally:
                raise KeyError("the answer to another call")

    with pytest.raises(end):
        job()


def test_what_fails_without_a_signal_is_a_failure() -> None:
    def job() -> None:
        with told_shortly(), ended_by_sigterm():
            raise KeyError("a fault")

    with pytest.raises(KeyError):
        job()
