"""The files of a trial start: whatever a start does to them stays in this process."""

from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from flintmq.offline.trial.private_files import PrivateFiles
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.mapped_file import DETACHED_SIZE_MIN, MappedFile

SIZE: Final = 4 * DETACHED_SIZE_MIN


@pytest.mark.parametrize("is_new", [True, False])
def test_a_large_flush_keeps_what_was_written_and_leaves_the_disk_alone(
    is_new: bool, tmp_path: Path
) -> None:
    path, files = tmp_path / "00000000000000000000", PrivateFiles(LocalFiles())
    if not is_new:
        path.write_bytes(bytes(SIZE))
    with closing(files.create(path, SIZE) if is_new else files.open(path)) as region:
        region.expect_fast_growth(0)
        file = MappedFile(region, 0, files=files)
        file.append(b"a" * (SIZE - 1))
        assert file.flush() == SIZE - 1
        assert region.view == b"a" * (SIZE - 1) + b"\0"
    assert files.read(path) == b"a" * (SIZE - 1) + b"\0"
    assert path.exists() == (not is_new)
    assert is_new or path.read_bytes() == bytes(SIZE)
