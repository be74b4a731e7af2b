"""The documents are true: examples are what the code writes, links lead somewhere.

docs/formats marks what is checked here by a comment in the line before it:

    <!-- example: NAME -->   a block fenced as ``hex``; each line is a position, bytes, a field and
                             maybe its value; a line without a field continues the one before
    <!-- layout: NAME -->    a table of (at, size, field, ...); letters stand for variable sizes
    <!-- table: NAME -->     a table whose cells are compared one by one
    <!-- state: NAME -->     a state file, as it is written

A block or table without such a comment is not checked; a ``hex`` block must have one.
"""

import dataclasses
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from flintmq.format import fastjson, sys_flag
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import CorruptRecordError
from flintmq.format.host import host_text, pack_host
from flintmq.format.java import index_hash, string_hash, tags_code
from flintmq.format.message_id import (
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
)
from flintmq.format.properties import decode_properties, encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch, walk_batch
from flintmq.format.stored.checkpoint import MARKER, decode_checkpoint, encode_checkpoint
from flintmq.format.stored.consume_queue import PRE_BLANK, UNIT_SIZE, read_units
from flintmq.format.stored.consume_queue_ext import END_MARK, decode_ext_unit
from flintmq.format.stored.index_file import IndexEntry, IndexHeader, entry_position, slot_position
from flintmq.format.stored.record import Blank, CheckedRecord, check_record, decode_record
from flintmq.format.stored.record_encoding import encode_blank
from flintmq.format.stored.record_layout import BLANK_MAGIC, MESSAGE_MAGIC
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.model.property_names import DELAY, KEYS, TAGS, UNIQ_KEY
from flintmq.store.config import StoreConfig
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.mapped_file_queue import file_name
from flintmq.store.log.torn_write import is_torn
from flintmq.store.message_store import MessageStore
from flintmq.store.views.key_index import IndexedMessage, KeyIndex
from flintmq.testing.clock import ManualClock

ROOT: Final = Path(__file__).parents[2]
FORMATS: Final = ROOT / "docs" / "formats"
PAGES: Final = sorted(FORMATS.glob("*.md"))
LINKING: Final = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

STORE_TIME: Final = 1700000000456
BORN_TIME: Final = 1700000000123
BORN_V4: Final = pack_host("192.168.1.10", 54321)
STORE_V4: Final = pack_host("10.0.0.1", 10911)
BORN_V6: Final = pack_host("2001:db8::1", 54321)
STORE_V6: Final = pack_host("2001:db8::2", 10911)
UNIQUE_ID: Final = "C0A8010A1F9818B4AAC22D2B1A2B0000"
INDEX_NAME: Final = 20231114221320456
SLOTS: Final = 5
DEFAULT_SLOTS: Final = 5_000_000
QUEUE_FILE_SIZE: Final = 6_000_000


# -- the marked pieces of the pages ------------------------------------------------------------


class Piece(NamedTuple):
    """Something on a page that is checked."""

    page: Path
    kind: str
    name: str
    text: str


_PIECE: Final = re.compile(
    r"^<!-- (?P<kind>example|layout|table|state): (?P<name>[a-z0-9-]+) -->\n"
    r"(?:```\w+\n(?P<block>.*?)^```$|(?P<table>(?:\|[^\n]*\n)+))",
    re.MULTILINE | re.DOTALL,
)


def _pieces() -> Iterator[Piece]:
    for page in PAGES:
        for match in _PIECE.finditer(page.read_text()):
            text = match["block"] if match["block"] is not None else match["table"]
            yield Piece(page, match["kind"], match["name"], text)


PIECES: Final = {(piece.kind, piece.name): piece for piece in _pieces()}


def _named(kind: str) -> list[str]:
    return [name for found, name in PIECES if found == kind]


def _rows(kind: str, name: str) -> list[list[str]]:
    """Return the cells of a marked table, without its head and without code marks."""
    _, _, *lines = PIECES[kind, name].text.splitlines()
    return [[_cell(text) for text in line.strip("|").split(" | ")] for line in lines]


def _cell(text: str) -> str:
    return text.strip().strip("`").replace(r"\|", "|")


class Field(NamedTuple):
    """One field of an example: its lines put together."""

    at: int
    name: str
    value: str | None
    data: bytes


_LINE: Final = re.compile(
    r" *(?P<at>\d+)  (?P<data>(?:[0-9a-f]{2})+)"
    r"(?: +(?P<name>[a-z0-9_]+)(?: = (?P<value>[^;]+))?(?:; .*)?)?"
)


def _fields(text: str) -> list[Field]:
    """Read the lines of an example; their positions must follow each other."""
    fields: list[Field] = []
    end = 0
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, line
        assert int(match["at"]) == end, line
        data = bytes.fromhex(match["data"])
        end += len(data)
        if match["name"] is None:
            fields[-1] = fields[-1]._replace(data=fields[-1].data + data)
        else:
            fields.append(Field(int(match["at"]), match["name"], match["value"], data))
    return fields


# -- what the examples should be -----------------------------------------------------------------

Value = int | str | bytes

LETTERS: Final = {
    "B": "born_host",
    "S": "store_host",
    "a": "ip",
    "n": "body",
    "b": "bitmap",
    "p": "properties",
    "t": "topic",
}
"""Which field has the size that a letter stands for in a layout."""


class Part(NamedTuple):
    """A stretch of an example that has a layout, with what the decoders read there."""

    at: int
    layout: str
    values: Mapping[str, Value]

    @property
    def sizes(self) -> dict[str, int]:
        """The size that each letter of the layout stands for."""
        values = self.values
        return {letter: len(_data(values.get(name, b""))) for letter, name in LETTERS.items()}

    def rows(self) -> list[tuple[int, int, str]]:
        """Return (position, size, name) of the fields that are not empty."""
        sizes = self.sizes
        cells = [row[:3] for row in _rows("layout", self.layout)]
        rows = [(self.at + _sum(at, sizes), _sum(size, sizes), name) for at, size, name in cells]
        return [row for row in rows if row[1]]


class Case(NamedTuple):
    """The bytes an example should show, and those parts of them that have a layout."""

    data: bytes
    parts: Sequence[Part] = ()


def _data(value: Value) -> bytes:
    assert not isinstance(value, int)
    return value.encode() if isinstance(value, str) else value


def _sum(expression: str, sizes: Mapping[str, int]) -> int:
    return sum(sizes[term] if term.isalpha() else int(term) for term in expression.split("+"))


def _with_lengths(values: Mapping[str, Value], **others: Value) -> dict[str, Value]:
    texts = {name: value for name, value in values.items() if not isinstance(value, int)}
    lengths = {f"{name}_length": len(_data(value)) for name, value in texts.items()}
    return {**lengths, **values, **others}


def _message(**fields: object) -> PutMessage:
    common = {"topic": "TopicTest", "queue_id": 3, "born_timestamp": BORN_TIME}
    hosts = {"born_host": BORN_V4, "store_host": STORE_V4}
    return PutMessage(**(common | hosts | fields))  # type: ignore[arg-type]


BATCH_BODY: Final = encode_batch(
    [BatchItem(0, b"b1", b"TAGS\x01TagA"), BatchItem(7, b"b2", b"")],
)


def _write_example_store(root: Path) -> None:
    """Write the store that all pages speak of."""
    config = StoreConfig(
        root=root,
        commit_log_file_size=4096,
        consume_queue_file_size=2000,
        hash_slot_count=SLOTS,
        index_entry_count=6,
    )
    with MessageStore.open(config, clock=ManualClock(STORE_TIME), background=False) as store:
        keys = {KEYS: "k1 k2", UNIQ_KEY: UNIQUE_ID, TAGS: "TagA"}
        store.put(_message(body=b"Hello RocketMQ", properties=keys))
        hosts = {"born_host": BORN_V6, "store_host": STORE_V6}
        store.put(_message(body=b"v6", properties={TAGS: "TagB"}, **hosts))
        store.put_batch(
            MessageBatch(
                topic="TopicTest",
                queue_id=3,
                body=BATCH_BODY,
                properties={"CLUSTER": "DefaultCluster"},
                born_timestamp=BORN_TIME,
                born_host=BORN_V4,
                store_host=STORE_V4,
            )
        )
        delay = {DELAY: "3", TAGS: "TagD"}
        store.put(_message(queue_id=1, body=b"delayed", properties=delay))


def _write_extended_store(root: Path) -> None:
    """Write three messages with filter bitmaps; an extension file holds two units."""
    config = StoreConfig(
        root=root,
        commit_log_file_size=4096,
        enable_consume_queue_ext=True,
        consume_queue_ext_file_size=64,
        hash_slot_count=SLOTS,
        index_entry_count=6,
    )
    bitmap = bytes(range(1, 9))
    with MessageStore.open(
        config,
        clock=ManualClock(STORE_TIME),
        background=False,
        filter_bitmap=lambda _topic, _properties: bitmap,
    ) as store:
        for _ in range(3):
            store.put(_message(properties={TAGS: "TagA"}))


def _record_case(log: bytes, position: int) -> Case:
    record = decode_record(log, position)
    assert record.crc_ok
    fields = record._asdict()
    text = fields.pop("properties_text")
    values = _with_lengths(fields, magic=MESSAGE_MAGIC)
    values |= {"properties": text, "properties_length": len(text)}
    return Case(log[position : position + record.size], [Part(0, "record", values)])


def _blank_case() -> Case:
    rest = encode_blank(900) + bytes(892)
    blank = check_record(rest, 0, 900, check_crc=True, expected_offset=None)
    assert isinstance(blank, Blank)
    return Case(rest[:8], [Part(0, "blank", {"size": blank.size, "magic": BLANK_MAGIC})])


def _batch_case() -> Case:
    parts = []
    at = 0
    for item in walk_batch(BATCH_BODY):
        size = 22 + len(item.body) + len(item.properties)
        values = _with_lengths(item._asdict(), size=size, magic=0, body_crc=0)
        parts.append(Part(at, "batch-item", values))
        at += size
    return Case(BATCH_BODY, parts)


def _units_case(source: Path | bytes) -> Case:
    content = source if isinstance(source, bytes) else source.read_bytes()
    parts = [
        Part(number * UNIT_SIZE, "queue-unit", unit._asdict())
        for number, unit in enumerate(read_units(content))
    ]
    return Case(content[: len(parts) * UNIT_SIZE], parts)


def _ext_file_case(data: bytes) -> Case:
    parts = []
    at = 0
    while (unit := decode_ext_unit(data, at)) is not None:
        values = _with_lengths({"bitmap": unit.bitmap or b""}, tags_code=unit.tags_code)
        values |= {"store_time": unit.store_time, "unit_size": unit.size}
        parts.append(Part(at, "ext-unit", values))
        at += unit.size
    assert data[at : at + 2] == END_MARK
    return Case(data, parts)


def _index_case(data: bytes) -> Case:
    header = IndexHeader.unpack_from(data)
    parts = [Part(0, "index-header", header._asdict())]
    for number in range(1, header.index_count):
        at = entry_position(SLOTS, number)
        parts.append(Part(at, "index-entry", IndexEntry.unpack_from(data, at)._asdict()))
    end = entry_position(SLOTS, header.index_count)
    assert not any(data[end:])
    return Case(data[:end], parts)


def _checkpoint_case(page: bytes) -> Case:
    found = decode_checkpoint(page)
    assert found.marks is not None
    # The store names the index file in the time zone of this machine.
    marks = found.marks._replace(index_file=INDEX_NAME)
    page = encode_checkpoint(dataclasses.replace(found, marks=marks))
    times = {"physic": found.physic, "logics": found.logics, "index": found.index}
    values: dict[str, Value] = {
        **times,
        **{f"{name}_copy": time for name, time in times.items()},
        **marks._asdict(),
        "unused": bytes(40),
        "marker": MARKER,
        "checksum": zlib.crc32(page[64:144]),
    }
    assert not any(page[148:])
    return Case(page[:148], [Part(0, "checkpoint", values)])


def _properties_case() -> Case:
    data = encode_properties({TAGS: "TagA", "X": None, "E": "", KEYS: "k1 k2"})
    assert decode_properties(data) == {TAGS: "TagA", KEYS: "k1 k2"}
    return Case(data)


def _offset_id_case() -> Case:
    text = encode_offset_id(STORE_V4, 311)
    store_host, physical_offset = decode_offset_id(text)
    values: dict[str, Value] = {"store_host": store_host, "physical_offset": physical_offset}
    return Case(bytes.fromhex(text), [Part(0, "offset-id", values)])


def _unique_id_case() -> Case:
    values = decode_unique_id(UNIQUE_ID)._asdict()
    return Case(bytes.fromhex(UNIQUE_ID), [Part(0, "unique-id", values)])


def _torn_record_case(log: bytes) -> Case:
    """The fifth record, of which only the words before 600 have reached the disk."""
    torn = log[:600] + bytes(4096 - 600)
    with pytest.raises(CorruptRecordError, match="size 166 leaves 75 bytes for properties of 0"):
        check_record(torn, 569, len(torn), check_crc=True, expected_offset=569)
    return Case(torn[569:605])


def _torn_tail_case(log: bytes) -> Case:
    """The fifth record, of which only the last word has not reached the disk."""
    torn = log[:728] + bytes(4096 - 728)
    record = check_record(torn, 569, len(torn), check_crc=True, expected_offset=569)
    assert isinstance(record, CheckedRecord)
    assert is_torn(record, memoryview(torn), 569)
    return Case(torn[704:736])


@pytest.fixture(scope="module")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("docs") / "store"
    _write_example_store(root)
    return root


@pytest.fixture(scope="module")
def cases(example_store: Path) -> dict[str, Case]:
    extended = example_store.with_name("extended")
    _write_extended_store(extended)
    first = file_name(0)
    log = (example_store / "commitlog" / first).read_bytes()
    queues = example_store / "consumequeue"
    (index_file,) = (example_store / "index").iterdir()
    ext_file = extended / "consumequeue_ext" / "TopicTest" / "3" / first
    return {
        "record-ipv4": _record_case(log, 0),
        "record-ipv6": _record_case(log, 176),
        "blank": _blank_case(),
        "batch-body": _batch_case(),
        "queue-units": _units_case(queues / "TopicTest" / "3" / first),
        "delayed-unit": _units_case(queues / "SCHEDULE_TOPIC_XXXX" / "2" / first),
        "pre-blank-unit": _units_case(PRE_BLANK),
        "ext-file": _ext_file_case(ext_file.read_bytes()),
        "ext-queue-units": _units_case(extended / "consumequeue" / "TopicTest" / "3" / first),
        "index-file": _index_case(index_file.read_bytes()),
        "checkpoint": _checkpoint_case((example_store / "checkpoint").read_bytes()),
        "property-string": _properties_case(),
        "offset-id": _offset_id_case(),
        "unique-id": _unique_id_case(),
        "delay-offsets": Case(fastjson.dumps({"offsetTable": {1: 8, 3: 202}}).encode()),
        "torn-record": _torn_record_case(log),
        "torn-tail": _torn_tail_case(log),
    }


# -- examples and layouts ------------------------------------------------------------------------


def _shown(data: bytes) -> set[str]:
    """Return the ways in which a page may write a value that stands in ``data``."""
    number = int.from_bytes(data, signed=True)
    texts = {str(number), hex(number), data.decode("ascii", "replace")}
    return texts | {host_text(data)} if len(data) in (8, 20) else texts


def _agrees(data: bytes, value: Value) -> bool:
    if isinstance(value, int):
        return value in (int.from_bytes(data), int.from_bytes(data, signed=True))
    return data == _data(value)


@pytest.mark.parametrize("name", _named("example"))
def test_an_example_is_what_the_code_writes(name: str, cases: dict[str, Case]) -> None:
    fields = _fields(PIECES["example", name].text)
    assert b"".join(field.data for field in fields) == cases[name].data
    for field in fields:
        assert field.value is None or field.value in _shown(field.data), field
    places = {(field.at, len(field.data), field.name): field.data for field in fields}
    for part in cases[name].parts:
        for row in part.rows():
            assert row in places
            assert _agrees(places[row], part.values[row[2]]), row


def test_every_example_is_checked_and_every_check_has_its_example(cases: dict[str, Case]) -> None:
    assert sorted(_named("example")) == sorted(cases)
    blocks = sum(page.read_text().count("```hex\n") for page in PAGES)
    marks = sum(page.read_text().count("\n<!-- ") for page in PAGES)
    assert blocks == len(cases)
    assert marks == len(PIECES)


@pytest.mark.parametrize("name", _named("layout"))
def test_the_fields_of_a_layout_follow_each_other(name: str) -> None:
    # Sizes that no example has, so that no letter can stand for another.
    sizes = {letter: 100 + 7**number for number, letter in enumerate(LETTERS)}
    end = 0
    for at, size, _, *_ in _rows("layout", name):
        assert _sum(at, sizes) == end
        end += _sum(size, sizes)


def test_every_layout_is_used_by_an_example(cases: dict[str, Case]) -> None:
    used = {part.layout for case in cases.values() for part in case.parts}
    assert used == set(_named("layout"))


@pytest.mark.parametrize("name", _named("state"))
def test_a_state_file_is_shown_as_it_is_written(name: str) -> None:
    text = PIECES["state", name].text.removesuffix("\n")
    assert fastjson.dumps(fastjson.loads(text)) == text


# -- tables --------------------------------------------------------------------------------------


def _example_store_rows(root: Path) -> Iterator[list[str]]:
    log = (root / "commitlog" / file_name(0)).read_bytes()
    position = 0
    while any(log[position:]):
        record = decode_record(log, position)
        yield [
            str(position),
            str(record.size),
            f"{record.topic}/{record.queue_id}",
            str(record.queue_offset),
            bytes(record.body).decode(),
        ]
        position += record.size


def test_the_example_store_is_the_one_described(example_store: Path) -> None:
    rows = [cells[1:] for cells in _rows("table", "example-store")]
    assert rows == list(_example_store_rows(example_store))


def _tags_code_row(text: str) -> list[str]:
    code = tags_code("" if text == "(none)" else text)
    return [text, str(code), code.to_bytes(8, signed=True).hex()]


def _due_row(level: str) -> list[str]:
    due = DelayLevels.parse(DEFAULT_DELAY_LEVELS).due_time(int(level), STORE_TIME)
    return [level, str(due), due.to_bytes(8).hex()]


def _queue_place_row(queue_offset: str) -> list[str]:
    start = int(queue_offset) * UNIT_SIZE
    position = start % QUEUE_FILE_SIZE
    return [queue_offset, str(start), file_name(start - position), str(position)]


def _key_hash_row(text: str) -> list[str]:
    signed_hash = string_hash(text)
    key_hash = index_hash(signed_hash & 0xFFFFFFFF)
    slot = key_hash % DEFAULT_SLOTS
    return [text, str(signed_hash), str(key_hash), str(slot), str(slot_position(slot))]


def _sys_flag_row(name: str) -> list[str]:
    value = getattr(sys_flag, name, None)
    return [name, f"{sys_flag.CompressionType[name] if value is None else value:#05x}"]


def _bitmap_row(bits: str) -> list[str]:
    bitmap = bytearray(14)
    for bit in map(int, bits.split(", ")):
        bitmap[bit // 8] |= 1 << bit % 8
    return [bits, bitmap.hex()]


def _setting_row(key: str) -> list[str]:
    config = StoreConfig(root=Path("store"))
    return [key, config.to_properties(java_only=False)[key]]


def _parsing_row(text: str) -> list[str]:
    stored = text.replace("=", "\x01").replace(";", "\x02").encode()
    found = decode_properties(stored)
    shown = [f"{name}: {value}".replace("\x01", "=") for name, value in found.items()]
    return [text, ", ".join(shown) or "nothing"]


ROW_MAKERS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "tags-codes": _tags_code_row,
    "due-times": _due_row,
    "queue-places": _queue_place_row,
    "key-hashes": _key_hash_row,
    "sys-flag": _sys_flag_row,
    "bitmaps": _bitmap_row,
    "settings": _setting_row,
    "parsing": _parsing_row,
}


@pytest.mark.parametrize("name", ROW_MAKERS)
def test_a_table_holds_what_the_code_computes(name: str) -> None:
    """The first cell of a row says what to compute, the next ones what comes out."""
    rows = _rows("table", name)
    assert rows
    for cells in rows:
        expected = ROW_MAKERS[name](cells[0])
        assert cells[: len(expected)] == expected


def test_the_first_entry_of_a_rolled_index_file_is_read_as_shown(tmp_path: Path) -> None:
    index = KeyIndex(
        tmp_path, slots=8, entries=4, files=LocalFiles(), clock=ManualClock(STORE_TIME)
    )
    times = [STORE_TIME + 5000 * number for number in range(6)]
    for number, time in enumerate(times):
        index.insert([IndexedMessage("T", [f"k{number}".encode()], 100 * number, time)])
    rows = []
    for file_number, file in enumerate(index.files, start=1):
        for number in range(1, file.count):
            _, offset, seconds, _ = file.entry(number)
            stored = (times[offset // 100] - STORE_TIME) // 1000
            read = (file.begin_time - STORE_TIME) // 1000 + seconds
            numbers = [file_number, number, stored, seconds, read]
            rows.append([f"k{offset // 100}", *map(str, numbers)])
    index.close()
    assert _rows("table", "index-roll") == rows


def test_every_table_is_checked() -> None:
    assert sorted(_named("table")) == sorted([*ROW_MAKERS, "example-store", "index-roll"])


# -- links ---------------------------------------------------------------------------------------

_FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Return what a link may name on a page, as it is made from the headings."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_something(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken
