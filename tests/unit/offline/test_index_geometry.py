"""The shape of index files is found from their content."""

from pathlib import Path

import pytest

from flintmq.format.stored.index_file import file_size
from flintmq.offline import SizeOptions, find_store
from flintmq.offline.index_geometry import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    IndexGeometry,
    find_geometry,
)
from flintmq.offline.regions import Regions
from flintmq.store.clock import SystemClock
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.views.key_index import IndexedMessage, KeyIndex
from tests.kits.store.offline_stores import index_file, make_store, overwrite


def geometry_of(root: Path, sizes: SizeOptions | None = None) -> IndexGeometry | None:
    layout = find_store(root, sizes=sizes)
    with Regions(layout.files) as regions:
        return find_geometry(layout, regions)


def make_index(root: Path, *, slots: int, entries: int, keys: int) -> Path:
    (root / "commitlog").mkdir(parents=True)
    index = KeyIndex(
        root / "index", slots=slots, entries=entries, files=LocalFiles(), clock=SystemClock()
    )
    index.insert(
        [IndexedMessage("T", [b"k%d" % number], number * 100, 1000) for number in range(keys)]
    )
    index.close()
    return root


@pytest.mark.parametrize(
    ("slots", "entries", "keys"),
    [(1, 2, 1), (7, 9, 3), (53, 204, 100), (100, 10, 9), (101, 404, 400), (997, 33, 60), (8, 4, 1)],
)
def test_slots_and_entries_are_detected(
    tmp_path: Path, slots: int, entries: int, keys: int
) -> None:
    found = geometry_of(make_index(tmp_path, slots=slots, entries=entries, keys=keys))
    assert found is not None
    assert (found.slots, found.entries) == (slots, entries)


def test_some_damaged_entries_do_not_matter(tmp_path: Path) -> None:
    root = make_index(tmp_path, slots=53, entries=204, keys=150)
    overwrite(index_file(root, 0), 40 + 53 * 4 + 20 * 77, bytes(60))
    found = geometry_of(root)
    assert found is not None
    assert (found.slots, found.entries) == (53, 204)


def test_without_files_it_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = geometry_of(tmp_path)
    assert found is not None
    assert (found.slots, found.entries) == (DEFAULT_SLOTS, DEFAULT_ENTRIES)
    half = geometry_of(tmp_path, SizeOptions(hash_slots=10))
    assert half is not None
    assert (half.slots, half.entries) == (10, DEFAULT_ENTRIES)


def test_a_file_without_entries_has_the_default_ratio_if_that_divides(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "index").mkdir()
    path = tmp_path / "index" / "20260101000000000"
    path.write_bytes(bytes(file_size(25, 100)))
    found = geometry_of(tmp_path)
    assert found is not None
    assert (found.slots, found.entries) == (25, 100)
    path.write_bytes(bytes(file_size(25, 101)))
    assert geometry_of(tmp_path) is None


def test_one_given_number_and_the_size_give_the_other(tmp_path: Path) -> None:
    root = make_index(tmp_path, slots=53, entries=204, keys=20)
    for sizes in (SizeOptions(hash_slots=53), SizeOptions(index_entries=204)):
        found = geometry_of(root, sizes)
        assert found is not None
        assert (found.slots, found.entries) == (53, 204)
        assert found.origin.startswith("given")
    both = geometry_of(root, SizeOptions(hash_slots=3, index_entries=4))
    assert both == IndexGeometry(3, 4, "given")


def test_a_file_of_noise_has_no_shape(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 20)
    path = index_file(root, 0)
    noise = bytes((number * 37 + 11) % 251 for number in range(path.stat().st_size - 40))
    overwrite(path, 40, noise)
    assert geometry_of(root) is None
