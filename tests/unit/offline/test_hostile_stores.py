"""Whatever the files hold, the tools end, and end without a crash."""

import contextlib
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.offline import Dump, OutputError, Selection, find_store, rebuild, stat
from tests.kits.store.offline_stores import LEVELS, check, make_store, overwrite

patches = st.lists(
    st.tuples(
        st.integers(min_value=0),
        st.integers(min_value=0),
        st.binary(min_size=1, max_size=12) | st.just(bytes(64)) | st.just(b"\xff" * 8),
    ),
    min_size=1,
    max_size=6,
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(
        tmp_path_factory.mktemp("pristine") / "store",
        40,
        enable_consume_queue_ext=True,
        consume_queue_ext_file_size=400,
    )


@given(drawn=patches)
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_patched_files(pristine: Path, tmp_path: Path, drawn: list[tuple[int, int, bytes]]) -> None:
    root, output = tmp_path / "store", tmp_path / "out"
    for path in (root, output):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(pristine, root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    for number, position, data in drawn:
        victim = files[number % len(files)]
        overwrite(victim, position % victim.stat().st_size, data)
        with victim.open("r+b") as file:
            file.truncate(max(victim.stat().st_size - (number % 3 == 0), 1))
    report = check(root)
    assert report.record_count <= 41
    stat(find_store(root))
    for selection in (
        Selection(),
        Selection(key="key-7"),
        Selection(topic="orders", queue_id=0, start=3),
        Selection(start=0, end=1 << 60),
    ):
        list(Dump(find_store(root), selection, delay_levels=LEVELS).messages())
    # The shape of the index may be unknown.
    with contextlib.suppress(OutputError):
        rebuild(find_store(root), output, queues=True, index=True, delay_levels=LEVELS)
