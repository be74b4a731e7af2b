"""What holds for all tests: how coroutines run, who shares a process, what may be left behind."""

import asyncio
import gc
import inspect
import signal
from collections.abc import Generator, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from flintmq.client.loop_thread import LoopThread
from tests.kits.leftovers import LEAVES_NOTHING, no_task_left, nothing_left

DEADLINE_S: Final = 60
"""How long a coroutine may take; ``pytest.mark.deadline(seconds)`` gives a test another time."""

NAMED_LENGTH_MAX: Final = 200
"""How long a text may be that stands in the name of a test with this parameter."""

# A loaded machine may take any time for an example; what is proven does not depend on it.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


def pytest_configure() -> None:
    """Hear Ctrl-C in a run that was started in the background too: its children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from ever looking at modules and at the list of all tests.

    They are half a million objects that stay.  A look at them takes half a second of processor
    time, several on a busy machine, and holds the servers and clients of a test meanwhile.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long parameter by its length.

    Some are megabytes.  Each process of a run writes the names of all tests and sends them to the
    one that gives out the work, again with each result.
    """
    if isinstance(val, str | bytes) and len(val) > NAMED_LENGTH_MAX:
        return f"{argname} of {len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a fixture of their module in one process, so that it is set up once."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            definitions = item._fixtureinfo.name2fixturedefs.values()
            if any(each[-1].scope == "module" for each in definitions):
                item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function; leave all others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    mark = pyfuncitem.get_closest_marker("deadline")
    deadline_s = DEADLINE_S if mark is None else mark.args[0]

    async def limited() -> None:
        async with asyncio.timeout(deadline_s):
            await pyfuncitem.obj(**arguments)
        if LEAVES_NOTHING in pyfuncitem.fixturenames:
            await no_task_left()

    asyncio.run(limited())
    return True


@pytest.fixture(scope="session")
def first_loop() -> None:
    """Have uvloop open the pipe that it keeps for the whole process."""
    LoopThread().close()


@pytest.fixture
def leaves_nothing(tmp_path_factory: pytest.TempPathFactory, first_loop: None) -> Iterator[None]:
    """Fail a test that leaves a thread, a task, a descriptor or a temporary directory.

    All tests of the client use it: those of ``tests/unit/client`` by themselves, modules elsewhere
    by ``pytest.mark.usefixtures(LEAVES_NOTHING)``.
    """
    with nothing_left(tmp_path_factory.mktemp("temporary")):
        yield
