"""How a job ends that is told to."""

import os
import signal
from pathlib import Path

import pytest

from flintmq.cli.pipeline.job import ended_by_sigterm


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
