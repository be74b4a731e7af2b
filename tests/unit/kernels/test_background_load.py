"""Optional modules are loaded in the background, once they are worth it."""

import gc
import subprocess
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.kernels import background_load
from flintmq.kernels import compile_ahead as compile_ahead_module
from flintmq.kernels.background_load import (
    THREAD_NAME,
    LoadOnDemand,
    freeze_loaded,
    load_ahead,
)


def join_loading() -> None:
    """Wait until what is being loaded is there, or has failed."""
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join()


def test_it_is_loaded_once_it_was_asked_for_often_enough() -> None:
    loads: list[str] = []

    def load() -> str:
        loads.append(threading.current_thread().name)
        return "it"

    loader = LoadOnDemand(load, ask_count=3)
    assert [loader.get(), loader.get()] == [None, None]
    join_loading()
    assert loads == []
    loader.get()
    join_loading()
    assert loader.get() == loader.get() == "it"
    assert loads == ["flintmq-loads"]


def test_nobody_waits_for_it() -> None:
    may_end = threading.Event()

    def load() -> str:
        assert may_end.wait(60)
        return "it"

    loader = LoadOnDemand(load, ask_count=1)
    assert loader.get() is None
    assert loader.get() is None
    may_end.set()
    join_loading()
    assert loader.get() == "it"


@pytest.mark.parametrize("error", [ImportError("no numba"), ValueError("no compiler")])
def test_what_cannot_be_loaded_is_done_without_and_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> str:
        raise error

    loader = LoadOnDemand(load, ask_count=1)
    with caplog.at_level("INFO"):
        for _ in range(3):
            assert loader.get() is None
            join_loading()
    assert len(caplog.records) == 1
    assert str(error) in caplog.text


class Compiling:
    """Stands for the process that compiles: notes what it was asked for, and says how it went."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, code: int = 0) -> None:
        self.programs: list[str] = []
        self._code = code
        monkeypatch.setattr(compile_ahead_module, "cache_directory", lambda: root)
        monkeypatch.setattr("subprocess.run", self._run)
        monkeypatch.setattr("importlib.metadata.version", lambda _: "1")

    def _run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        self.programs.append(command[-1])
        return subprocess.CompletedProcess(command, self._code, b"", b"Traceback\nno compiler")


def test_what_was_never_compiled_is_compiled_by_another_process_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiling = Compiling(monkeypatch, tmp_path)
    for _ in range(2):
        loader = LoadOnDemand(lambda: "it", ask_count=1, program="import it")
        loader.get()
        join_loading()
        join_loading()  # The thread that waited has begun another one.
        assert loader.loaded == "it"
    assert len(compiling.programs) == 1
    assert compiling.programs[0].endswith("import it")


def test_what_another_process_could_not_compile_is_loaded_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiling = Compiling(monkeypatch, tmp_path, code=1)
    assert not compile_ahead_module.compile_ahead("import it")
    assert not compile_ahead_module.compile_ahead("import it")
    assert len(compiling.programs) == 2
    assert "reason=no compiler" in caplog.text


def test_a_real_process_compiles_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compile_ahead_module, "cache_directory", lambda: tmp_path)
    program = f"open({str(tmp_path / 'times')!r}, 'a').write('x')"
    assert compile_ahead_module.compile_ahead(program)
    assert compile_ahead_module.compile_ahead(program)
    assert (tmp_path / "times").read_text() == "x"


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests have made."""
    monkeypatch.setattr(background_load, "_wanted", weakref.WeakSet())


@pytest.mark.usefixtures("wanted")
def test_what_was_compiled_before_is_loaded_before_anybody_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiling = Compiling(monkeypatch, tmp_path)
    assert compile_ahead_module.compile_ahead("import it")
    loads: list[str] = []
    loaders = [
        LoadOnDemand(lambda: loads.append("it"), program="import it"),
        LoadOnDemand(lambda: loads.append("more"), ask_count=1),
        LoadOnDemand(lambda: loads.append("never"), ask_count=0, program="import it"),
    ]
    load_ahead().join()
    assert sorted(loads) == ["it", "more"]
    for _ in range(background_load.ASK_COUNT):
        loaders[0].get()
    join_loading()
    load_ahead().join()
    assert sorted(loads) == ["it", "more"]
    assert len(compiling.programs) == 1


@pytest.mark.usefixtures("wanted")
def test_what_was_never_compiled_waits_until_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiling = Compiling(monkeypatch, tmp_path)
    first = LoadOnDemand(lambda: "it", ask_count=1, program="import it")
    second = LoadOnDemand(lambda: "more", ask_count=1)
    load_ahead().join()
    assert (first.loaded, second.loaded) == (None, None)
    assert compiling.programs == []
    first.get()
    join_loading()
    join_loading()  # The thread that waited has begun another one.
    assert first.loaded == "it"


@pytest.fixture
def collector() -> Iterator[None]:
    """Leave the garbage collector as it was found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background_load, "_freezes", False)
        yield
    gc.freeze()  # As all tests have it.
    gc.enable()


@pytest.mark.usefixtures("collector")
def test_the_garbage_collector_does_not_look_at_what_is_being_loaded() -> None:
    seen: list[bool] = []

    def load() -> str:
        seen.append(gc.isenabled())
        return "it"

    gc.unfreeze()
    first, second = LoadOnDemand(load, ask_count=1), LoadOnDemand(load, ask_count=1)
    first.get(), second.get()
    join_loading()
    assert seen == [False, False]
    assert gc.isenabled()
    # A program that has frozen nothing may not want it.
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("collector")
def test_a_server_freezes_what_was_loaded_with_what_its_start_has_loaded() -> None:
    kept: list[list[object]] = []

    def load() -> str:
        kept.extend([] for _ in range(2000))
        return "it"

    freeze_loaded()
    before = gc.get_freeze_count()
    LoadOnDemand(load, ask_count=1).get()
    join_loading()
    assert gc.get_freeze_count() >= before + 1000


@pytest.mark.usefixtures("collector")
def test_nobody_counts_what_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1))
    freeze_loaded()
    LoadOnDemand(lambda: "it", ask_count=1).get()
    join_loading()
    assert not counted


@pytest.mark.usefixtures("collector")
def test_a_collector_that_somebody_else_has_paused_stays_so() -> None:
    gc.disable()
    LoadOnDemand(lambda: "it", ask_count=1).get()
    join_loading()
    assert not gc.isenabled()
