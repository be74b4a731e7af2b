"""The rules of the house that no linter knows: lengths, names, doors, and a map that is true."""

import ast
import functools
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
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


class Module(NamedTuple):
    """A source file and what is in it."""

    path: Path
    name: str
    """Dotted, as it is imported."""
    text: str
    tree: ast.Module


@functools.cache
def modules(root: Path = SOURCES) -> tuple[Module, ...]:
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        found.append(Module(path, name.removesuffix(".__init__"), text, ast.parse(text)))
    return tuple(found)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_a_function_fits_on_one_screen() -> None:
    long = [
        f"{module.name}.{one.name}: {lines}"
        for root in (SOURCES, ROOT / "bench", ROOT / "soak", ROOT / "examples")
        for module in modules(root)
        for one in functions(module.tree)
        if (lines := (one.end_lineno or 0) - one.lineno + 1) > FUNCTION_LINES_MAX
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
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module.name)
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
            names |= set(listed(module.tree))
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
    """Return how often each word is written in the sources, the command line's strings included."""
    words: Counter[str] = Counter()
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name):
                words[node.id] += 1
            elif isinstance(node, ast.Attribute):
                words[node.attr] += 1
            elif isinstance(node, ast.keyword) and node.arg:
                words[node.arg] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # Annotations in quotes, and what is imported by its name.
                words.update(() if " " in node.value else re.findall(r"\w+", node.value))
    return words


def definitions(module: Module) -> Iterator[tuple[str, bool]]:
    """Yield the names that a module defines, and whether a definition mentions its own name."""
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
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
        for name, mentions_itself in definitions(module)
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
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef) or node.name in exported:
                continue
            for one in node.body:
                if (
                    isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not one.name.startswith("_")
                    and one.name not in FRAMEWORK_METHODS
                    and one.name not in KEPT
                    and words[one.name] == 0
                    and f".{one.name}(" not in documents
                ):
                    unused.append(f"{module.name}.{node.name}.{one.name}")
    assert unused == []


# -- doors -----------------------------------------------------------------------------------


def imported(module: Module, known: frozenset[str]) -> Iterator[str]:
    """Yield the modules of ours that a module imports."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("flintmq"):
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                yield whole if whole in known else node.module
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("flintmq"))


def test_a_room_is_entered_through_its_doors() -> None:
    """A module may be imported from outside its package if the package lists it in ``__all__``."""
    known = frozenset(module.name for module in modules())
    packages = {one.name: listed(one.tree) for one in modules() if one.path.name == "__init__.py"}
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
            for name in listed(module.tree):
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
        f"{module.name} imports {node.module}"
        for module in modules(ROOT / "tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and re.search(r"\btest_", node.module or "")
    ]
    assert wrong == []


def test_the_garbage_collector_does_not_look_at_what_all_tests_share() -> None:
    # It took seconds on a busy machine, and requests of tests ran out of time.
    assert gc.get_freeze_count() > OBJECTS_OF_PYTEST


@pytest.mark.xdist_group("tidy")
def test_tests_of_one_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    # The scheduler knows groups by the ends of names alone, and says nothing when they are missing.
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@tidy")


def test_unit_tests_lie_in_directories_named_after_what_they_test() -> None:
    # What stands beside the sources, such as the soak runs, has unit tests too.
    packages = {path.name for root in (SOURCES, ROOT) for path in root.iterdir() if path.is_dir()}
    directories = {path.name for path in (ROOT / "tests" / "unit").iterdir() if path.is_dir()}
    assert directories - {"__pycache__"} <= packages
