"""Writes the tables of ARCHITECTURE.md that follow from the sources and the import contracts.

``python -m tools.architecture`` brings them up to date; ``tests/test_tidy.py`` checks them.
"""

import ast
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
ARCHITECTURE: Final = ROOT / "ARCHITECTURE.md"
SOURCES: Final = ROOT / "src" / "flintmq"


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def _layers() -> list[list[str]]:
    """Return the packages, lowest layer first; those of one layer may not import each other."""
    (layers,) = [one["layers"] for one in _contracts() if one["type"] == "layers"]
    return [re.findall(r"\w+", layer) for layer in reversed(layers)]


def _first_sentence(path: Path) -> str:
    """Return what the docstring of a module says first, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def _home(package: str) -> Path:
    """Return the file that describes a package of the top level."""
    folder = SOURCES / package
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _never(package: str) -> list[str]:
    """Return what the contracts forbid a package to import."""
    name = f"flintmq.{package}"
    never = []
    for contract in _contracts():
        if contract["type"] == "forbidden" and name in contract["source_modules"]:
            never += contract["forbidden_modules"]
        if contract["type"] == "protected" and not _is_allowed(name, contract):
            never += contract["protected_modules"]
    return [one.removeprefix("flintmq.") for one in dict.fromkeys(never)]


def _is_allowed(name: str, contract: Mapping[str, Any]) -> bool:
    allowed: Sequence[str] = contract["allowed_importers"]
    return name in allowed or name in contract["protected_modules"]


def package_table() -> str:
    """Return the table of packages: what each is, what it may import and what never."""
    rows = ["| Package | What it is | May import | Never |", "| --- | --- | --- | --- |"]
    lower: list[str] = []
    for layer in _layers():
        there = [name for name in layer if _home(name).exists()]
        for name in there:
            what = _first_sentence(_home(name))
            may = "all of the above" if len(lower) > 3 else ", ".join(f"`{one}`" for one in lower)
            never = ", ".join(f"`{one}`" for one in _never(name) if one not in layer)
            rows.append(f"| `{name}` | {what} | {may or 'nothing'} | {never or '—'} |")
        lower += there
    return "\n".join(rows)


def _rooms() -> list[Path]:
    """Return all packages, in the order of the layers and by their names within one."""
    order = [name for layer in _layers() for name in layer]
    folders = [path.parent for path in SOURCES.rglob("__init__.py") if path.parent != SOURCES]
    return sorted(folders, key=lambda one: (order.index(one.relative_to(SOURCES).parts[0]), one))


def _room_modules(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def module_table() -> str:
    """Return the table of rooms with the modules of each."""
    rows = ["| Room | What is in it | Modules |", "| --- | --- | --- |"]
    for folder in _rooms():
        name = folder.relative_to(SOURCES).as_posix()
        names = ", ".join(f"`{one}`" for one in _room_modules(folder))
        rows.append(f"| `{name}` | {_first_sentence(folder / '__init__.py')} | {names or '—'} |")
    return "\n".join(rows)


def generated_sections() -> dict[str, str]:
    """Return the generated tables by the names that they have in ARCHITECTURE.md."""
    return {"packages": package_table(), "modules": module_table()}


def missing_modules() -> list[str]:
    """Return the modules that ARCHITECTURE.md does not name beside their room."""
    lines = ARCHITECTURE.read_text("utf-8").splitlines()
    missing = []
    for folder in _rooms():
        room = folder.relative_to(SOURCES).as_posix()
        said = " ".join(line for line in lines if line.startswith(f"| `{room}` |"))
        missing += [f"{room}/{one}" for one in _room_modules(folder) if f"`{one}`" not in said]
    return missing


def main() -> None:
    """Bring the tables of ARCHITECTURE.md up to date."""
    text = ARCHITECTURE.read_text("utf-8")
    for name, table in generated_sections().items():
        begin, end = f"<!-- generated: {name} -->\n", "\n<!-- end -->"
        head, found, rest = text.partition(begin)
        assert found, f"ARCHITECTURE.md has no place for {name}"
        text = head + begin + table + end + rest.partition(end)[2]
    ARCHITECTURE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
