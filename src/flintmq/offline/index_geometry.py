"""How many slots and entries an index file has, which its header does not say.

Only the sum is known: a file has 40 + 4·slots + 20·entries bytes.  The content tells the rest:
the last byte that is not zero belongs to the last entry, whose number the header gives, and with
the right number of slots every entry is in the slot its hash asks for.
"""

from typing import Final, NamedTuple

from flintmq.format.stored.index_file import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    IndexHeader,
    entry_position,
    file_size,
    slot_position,
)
from flintmq.format.stored.record_search import written_bounds
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.regions import Regions

DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000
DEFAULT_RATIO: Final = DEFAULT_ENTRIES // DEFAULT_SLOTS

CANDIDATE_FILES_MAX: Final = 3
SAMPLE_COUNT_MAX: Final = 1000
SCORE_MIN: Final = 0.9
"""Some entries may be damaged; with a wrong number of slots hardly any fits."""


class IndexGeometry(NamedTuple):
    """The shape of the index files of a store."""

    slots: int
    entries: int
    origin: str
    """How it is known, in words."""


def find_geometry(layout: StoreLayout, regions: Regions) -> IndexGeometry | None:
    """Return the shape of the index files, None when there are files and it cannot be told."""
    sizes = layout.sizes
    if sizes.hash_slots is not None and sizes.index_entries is not None:
        return IndexGeometry(sizes.hash_slots, sizes.index_entries, "given")
    files = [file for file in layout.index_files if file.size > HEADER_SIZE]
    if not files:
        return _without_files(layout)
    common = max({file.size for file in files}, key=[file.size for file in files].count)
    alike = [file for file in files if file.size == common]
    given = _from_one_number(layout, common)
    if given is not None:
        return given
    ratio = _ratio_slots(common)
    if ratio is not None and _score(alike, ratio, regions) >= SCORE_MIN:
        origin = "RocketMQ's ratio, confirmed by the entries"
        return IndexGeometry(ratio, ratio * DEFAULT_RATIO, origin)
    best: IndexGeometry | None = None
    best_score = 0.0
    for slots in _candidates(alike[:CANDIDATE_FILES_MAX], common, regions):
        score = _score(alike, slots, regions)
        if score >= SCORE_MIN and score > best_score:
            entries = (common - HEADER_SIZE - slots * SLOT_SIZE) // ENTRY_SIZE
            best, best_score = IndexGeometry(slots, entries, "detected from the entries"), score
    if best is None and ratio is not None and not any(_is_used(alike, regions)):
        return IndexGeometry(ratio, ratio * DEFAULT_RATIO, "RocketMQ's ratio, no entries yet")
    return best


def _without_files(layout: StoreLayout) -> IndexGeometry:
    sizes = layout.sizes
    slots = DEFAULT_SLOTS if sizes.hash_slots is None else sizes.hash_slots
    entries = DEFAULT_ENTRIES if sizes.index_entries is None else sizes.index_entries
    return IndexGeometry(slots, entries, "no files, RocketMQ's default")


def _from_one_number(layout: StoreLayout, size: int) -> IndexGeometry | None:
    """Derive one number from the other and the size of the files."""
    sizes = layout.sizes
    if sizes.hash_slots is not None:
        entries, rest = divmod(size - file_size(sizes.hash_slots, 0), ENTRY_SIZE)
        if rest == 0 and entries > 0:
            return IndexGeometry(sizes.hash_slots, entries, "given slots and the file size")
    if sizes.index_entries is not None:
        slots, rest = divmod(size - file_size(0, sizes.index_entries), SLOT_SIZE)
        if rest == 0 and slots > 0:
            return IndexGeometry(slots, sizes.index_entries, "given entries and the file size")
    return None


def _ratio_slots(size: int) -> int | None:
    slots, rest = divmod(size - HEADER_SIZE, SLOT_SIZE + DEFAULT_RATIO * ENTRY_SIZE)
    return slots if rest == 0 and slots > 0 else None


def _is_used(files: list[DataFile], regions: Regions) -> list[bool]:
    headers = (_header(file, regions) for file in files)
    return [header is not None and header.index_count > 1 for header in headers]


def _header(file: DataFile, regions: Regions) -> IndexHeader | None:
    view = regions.view(file.path)
    return None if view is None or len(view) < HEADER_SIZE else IndexHeader.unpack_from(view)


def _candidates(files: list[DataFile], size: int, regions: Regions) -> list[int]:
    """Return numbers of slots worth a try."""
    found: list[int] = []
    for file in files:
        view = regions.view(file.path)
        if view is None:
            continue
        header = IndexHeader.unpack_from(view)
        bounds = written_bounds(view, [(HEADER_SIZE, size)], size)
        if header.index_count <= 1 or bounds is None:
            continue
        # The last written byte lies in the last entry, so the entries begin within 20 bytes of
        # a known place; of the five numbers of slots that allows, the size admits one.
        last_entry_min = bounds[1] - ENTRY_SIZE
        base_max = bounds[1] - 1 - (header.index_count - 1) * ENTRY_SIZE
        base_min = last_entry_min - (header.index_count - 1) * ENTRY_SIZE
        for slots in range(
            max((base_min - HEADER_SIZE) // SLOT_SIZE, 1),
            (base_max - HEADER_SIZE) // SLOT_SIZE + 1,
        ):
            if (size - HEADER_SIZE - slots * SLOT_SIZE) % ENTRY_SIZE == 0 and slots not in found:
                found.append(slots)
    return found


def _score(files: list[DataFile], slots: int, regions: Regions) -> float:
    """Return which part of the entries, of at most SAMPLE_COUNT_MAX per file, fits ``slots``.

    An entry fits when its slot holds it or a newer one, and its own link leads to an older one.
    """
    tried = fitting = 0
    for file in files:
        view = regions.view(file.path)
        if view is None:
            continue
        count = IndexHeader.unpack_from(view).index_count
        if entry_position(slots, count) > len(view):
            tried += 1
            continue
        step = max((count - 1) // SAMPLE_COUNT_MAX, 1)
        for number in range(1, count, step):
            key_hash, offset, _, previous = ENTRY.unpack_from(view, entry_position(slots, number))
            (newest,) = SLOT.unpack_from(view, slot_position(key_hash % slots))
            tried += 1
            fitting += (
                key_hash >= 0
                and offset >= 0
                and 0 <= previous < number
                and number <= newest < count
            )
    return fitting / tried if tried else 0.0
