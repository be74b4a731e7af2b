"""How a job ends that is told to."""

import os
import signal
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


def test_whatever_fails_after_sigterm_is_no_failure() -> None:
    def job() -> None:
        with ended_by_sigterm():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                signal.sigtimedwait([], 30)
            finally:
                raise KeyError("the answer to another call")

    with pytest.raises(SystemExit) as ended:
        job()
    assert ended.value.code == 128 + signal.SIGTERM


def test_whatever_fails_after_ctrl_c_is_no_failure() -> None:
    def job() -> None:
        with told_shortly():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                signal.sigtimedwait([], 30)
            finally:
                raise KeyError("the answer to another call")

    with pytest.raises(JobInterruptedError):
        job()


def test_what_fails_without_a_signal_is_a_failure() -> None:
    def job() -> None:
        with told_shortly(), ended_by_sigterm():
            raise KeyError("a fault")

    with pytest.raises(KeyError):
        job()
