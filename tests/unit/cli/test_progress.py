"""The progress bar is for terminals."""

import io
import sys

import pytest

from flintmq.cli.output.progress import progress_bar


class Terminal(io.StringIO):
    """Claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_nothing_is_shown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("verify") as progress:
        assert progress is None
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("verify") as progress:
        assert progress is not None
        progress(50, 100)
    assert "verify" in terminal.getvalue()
    with progress_bar("dump", shown=False) as progress:
        assert progress is None
