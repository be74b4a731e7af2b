"""The rules of the house that no linter knows: lengths, names, doors, and a map that is true."""

import ast
import functools
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tools.architecture import ARCHITECTURE, generated_sections, missing_modules

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "src" / "flintmq"
FUNCTION_LINES_MAX: Final = 70
MODULE_LINES_MAX: Final = 500
OBJECTS_OF_PYTEST: Final = 10_000
"""Fewer than the objects that pytest has when it has found some tests."""

FRAMEWORK_METHODS: Final = frozenset(
    {
        # asyncio.Protocol
        *("connection_made", "connection_lost", "data_received", "eof_received"),
        *("pause_writing", "resume_writing"),
        # PySpark's data sources, readers, writers and streams
        *("name", "schema", "reader", "writer", "streamReader", "streamWriter"),
        *("partitions", "read", "write", "commit", "abort", "pushFilters", "initialOffset"),
        *("latestOffset", "getDefaultReadLimit", "reportLatestOffset"),
        "prepareForTriggerAvailableNow",
        # click, logging, ast
        *("get_command", "list_commands", "format_commands"),
        *("emit", "format", "formatTime", "filter"),
        # numba's caches
        *("get_cache_path", "get_source_stamp", "get_disambiguator", "from_function"),
    }
)
"""Names by which a framework calls what we wrote."""

KEPT: Final = {
    # Half of a codec; tests prove the other half by it.
    "unpack_host": "reads what pack_host writes",
    "decode_unique_id": "reads what clients make",
    "read_units": "reads what pack_units writes",
    "IndexEntry": "one entry of an index file, as documented",
    "encode_frame": "writes what FrameDecoder reads",
    "is_pre_blank": "tells the units that stand for nothing",
    "located": "names the file of damaged bytes",
    # What the next capabilities stand on.
    "read_range": "replication streams the log by it",
    "clean_unused_light_queue": "light queues are deleted by it",
    "next_due_ms": "a caller without a tick sleeps until then",
    "mean_us": "metrics tell it",
    "percentile_us": "metrics tell it",
}
"""Public names without a caller in the sources, and why they are there."""

REPEATED: Final = {
    **dict.fromkeys(("errors", "config"), "what a package raises; what a server is told"),
    "clock": "the clock, and the one that tests turn",
    "subscription": "a subscription, and its notation",
    "routes": "routes as values, as bytes, and as the table that name servers keep",
    "namesrv": "the name server, and the headers of its requests",
    **dict.fromkeys(
        ("access", "clients", "groups", "offsets", "pull", "query", "send", "send_back", "topics"),
        "one family of requests: headers, bodies, processors, the client's side, the table in SQL",
    ),
    "table": "the one table of a room, by request code",
    **dict.fromkeys(("consume_queue", "consume_queue_ext"), "the notation, and the files"),
    "index": "the key index: its kernels, and its table in SQL",
    **dict.fromkeys(
        ("dispatch_fields", "plain_properties", "properties", "record_encoding", "sends"),
        "one rule in two engines, Python and kernels",
    ),
}
"""Names of several modules, and the one thing that each name stands for."""


FUNCTIONS: Final = ast.FunctionDef | ast.AsyncFunctionDef

# In one process, so that all sources are read once.
pytestmark = pytest.mark.xdist_group("tidy")


class Module(NamedTuple):
    """A source file and what is in it; trees of all files would be a million objects."""

    path: Path
    name: str
    """Dotted, as it is imported."""
    text: str
    lines: dict[str, int]
    """Of the longest function of each name."""
    methods: tuple[tuple[str, tuple[str, ...]], ...]
    """Classes, and the names of their functions."""
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    """Modules, and what is imported from them; nothing stands for the module itself."""
    defined: tuple[tuple[str, bool], ...]
    """Names, and whether a definition mentions its own name."""
    listed: tuple[str, ...]
    """What stands in ``__all__``."""
    words: Counter[str]
    """How often each word is written, the command line's strings included."""


def modules(root: Path = SOURCES) -> tuple[Module, ...]:
    return read_modules(root)


@functools.cache
def read_modules(root: Path) -> tuple[Module, ...]:
    return tuple(module_of(path, root) for path in sorted(root.rglob("*.py")))


def module_of(path: Path, root: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
    tree = ast.parse(text)
    found = Module(
        path,
        name.removesuffix(".__init__"),
        text,
        lines={},
        methods=(),
        imports=(),
        defined=tuple(definitions(tree)),
        listed=tuple(listed(tree)),
        words=Counter(),
    )
    methods, imports = [], []
    for node in ast.walk(tree):
        found.words.update(written(node))
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                length = (node.end_lineno or 0) - node.lineno + 1
                found.lines[node.name] = max(length, found.lines.get(node.name, 0))
            case ast.ClassDef():
                inside = (one for one in node.body if isinstance(one, FUNCTIONS))
                methods.append((node.name, tuple(one.name for one in inside)))
            case ast.ImportFrom(module=str(origin)):
                imports.append((origin, tuple(one.name for one in node.names)))
            case ast.Import():
                imports += [(one.name, ()) for one in node.names]
    return found._replace(methods=tuple(methods), imports=tuple(imports))


def written(node: ast.AST) -> Iterable[str]:
    """Return the words that are written in a node, without those of the nodes in it."""
    match node:
        case ast.Name():
            return (node.id,)
        case ast.Attribute():
            return (node.attr,)
        case ast.keyword(arg=str(name)):
            return (name,)
        # Annotations in quotes, and what is imported by its name.
        case ast.Constant(value=str(value)) if " " not in value:
            return re.findall(r"\w+", value)
    return ()


def test_a_function_fits_on_one_screen() -> None:
    long = [
        f"{module.name}.{name}: {lines}"
        for root in (SOURCES, ROOT / "bench", ROOT / "soak", ROOT / "examples")
        for module in modules(root)
        for name, lines in module.lines.items()
        if lines > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_a_module_has_one_reason_and_at_most_500_lines() -> None:
    long = [
        f"{module.name}: {lines}"
        for root in (SOURCES, ROOT / "bench", ROOT / "soak", ROOT / "tools")
        for module in modules(root)
        if (lines := module.text.count("\n")) > MODULE_LINES_MAX
    ]
    assert long == []


def test_no_two_classes_have_one_name() -> None:
    homes = defaultdict(list)
    for module in modules():
        for name, _ in module.methods:
            homes[name].append(module.name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_modules_of_one_name_are_about_one_thing() -> None:
    homes = Counter(one.path.stem for one in modules() if not one.path.stem.startswith("__"))
    assert {name for name, count in homes.items() if count > 1} == set(REPEATED)


# -- names that nobody uses ------------------------------------------------------------------


def exported_names() -> frozenset[str]:
    """Names that users import: they stand in the list ``__all__`` of a package."""
    names: set[str] = set()
    for module in modules():
        if module.path.name == "__init__.py":
            names |= set(module.listed)
    return frozenset(names)


def listed(tree: ast.Module) -> list[str]:
    """Return what a module lists in ``__all__``."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        ):
            assert isinstance(node.value, ast.List | ast.Tuple)
            return [str(ast.literal_eval(one)) for one in node.value.elts]
    return []


@functools.cache
def mentions() -> Counter[str]:
    """Return how often each word is written in the sources."""
    words: Counter[str] = Counter()
    for module in modules():
        words.update(module.words)
    return words


def definitions(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the names that a module defines, and whether a definition mentions its own name."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS | ast.ClassDef):
            if not node.decorator_list or isinstance(node, ast.ClassDef):
                yield node.name, False
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, True


def test_no_public_name_is_without_a_caller_or_an_export() -> None:
    exported, words = exported_names(), mentions()
    unused = [
        f"{module.name}.{name}"
        for module in modules()
        for name, mentions_itself in module.defined
        if not name.startswith("_")
        and name not in exported
        and name not in KEPT
        and words[name] <= (1 if mentions_itself else 0)
    ]
    assert unused == []


def test_no_public_method_is_without_a_caller() -> None:
    exported, words = exported_names(), mentions()
    documents = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    unused = []
    for module in modules():
        for owner, methods in module.methods:
            if owner in exported:
                continue
            for name in methods:
                if (
                    not name.startswith("_")
                    and name not in FRAMEWORK_METHODS
                    and name not in KEPT
                    and words[name] == 0
                    and f".{name}(" not in documents
                ):
                    unused.append(f"{module.name}.{owner}.{name}")
    assert unused == []


# -- doors -----------------------------------------------------------------------------------


def imported(module: Module, known: frozenset[str]) -> Iterator[str]:
    """Yield the modules of ours that a module imports."""
    for origin, names in module.imports:
        if origin.startswith("flintmq"):
            wholes = (f"{origin}.{name}" for name in names)
            yield from (
                (whole if whole in known else origin for whole in wholes) if names else [origin]
            )


def test_a_room_is_entered_through_its_doors() -> None:
    """A module may be imported from outside its package if the package lists it in ``__all__``."""
    known = frozenset(module.name for module in modules())
    packages = {one.name: one.listed for one in modules() if one.path.name == "__init__.py"}
    broken = set()
    for module in modules():
        for wanted in imported(module, known):
            names = wanted.split(".")
            for depth in range(2, len(names)):
                package, child = ".".join(names[:depth]), names[depth]
                is_inside = module.name == package or module.name.startswith(package + ".")
                if not is_inside and child not in packages[package]:
                    broken.add(f"{module.name} imports {wanted}: {package} does not list {child}")
    assert sorted(broken) == []


def test_every_listed_door_is_there() -> None:
    known = {module.name for module in modules()}
    for module in modules():
        if module.path.name == "__init__.py":
            for name in module.listed:
                code = module.text[module.text.index('"""', 3) :].replace(f'"{name}",', "")
                assert f"{module.name}.{name}" in known or re.search(rf"\b{name}\b", code), (
                    f"{module.name} lists {name}"
                )


# -- the map ---------------------------------------------------------------------------------


def test_every_module_is_named_in_the_map() -> None:
    assert missing_modules() == []


@pytest.mark.parametrize("name", sorted(generated_sections()))
def test_the_generated_tables_of_the_map_are_up_to_date(name: str) -> None:
    assert generated_sections()[name] in ARCHITECTURE.read_text("utf-8"), (
        "run: python -m tools.architecture"
    )


def test_documents_name_only_modules_that_are_there() -> None:
    written = re.compile(
        r"`((?:store|broker|client|remoting|spark|cli|offline|format|kernels)/[a-z_/]+)`"
    )
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
        for name in written.findall(path.read_text("utf-8"))
        if not (SOURCES / name).is_dir() and not (SOURCES / f"{name}.py").exists()
    ]
    assert wrong == []


def test_no_test_module_imports_another() -> None:
    wrong = [
        f"{module.name} imports {origin}"
        for module in modules(ROOT / "tests")
        for origin, names in module.imports
        if names and re.search(r"\btest_", origin)
    ]
    assert wrong == []


def test_the_garbage_collector_does_not_look_at_what_all_tests_share() -> None:
    # It took seconds on a busy machine, and requests of tests ran out of time.
    assert gc.get_freeze_count() > OBJECTS_OF_PYTEST


def test_tests_of_one_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    # The scheduler knows groups by the ends of names alone, and says nothing when they are missing.
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@tidy")


def test_unit_tests_lie_in_directories_named_after_what_they_test() -> None:
    # What stands beside the sources, such as the soak runs, has unit tests too.
    packages = {path.name for root in (SOURCES, ROOT) for path in root.iterdir() if path.is_dir()}
    directories = {path.name for path in (ROOT / "tests" / "unit").iterdir() if path.is_dir()}
    assert directories - {"__pycache__"} <= packages
