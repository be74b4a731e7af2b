"""Reports as JSON: dataclasses and named tuples become objects with camelCase members."""

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Final

from flintmq.offline import Findings, Severity


def to_json(value: object) -> str:
    """Return a report as indented JSON.  Only ASCII is written, so no terminal is harmed."""
    return json.dumps(plain(value), indent=2)


_encode_line: Final = json.JSONEncoder(separators=(",", ":")).encode


def line(value: object) -> str:
    """Return one object on one line."""
    return _encode_line(value)


def with_members(report: object, **members: object) -> dict[str, object]:
    """Return a report as an object that has further members."""
    fields = plain(report)
    assert isinstance(fields, dict), report
    return fields | members


def plain(value: object) -> object:
    """Return a report as objects, lists, texts and numbers."""
    if isinstance(value, Findings):
        return _findings(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {_camel(name): plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {_camel(name): plain(item) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    return value


def _findings(findings: Findings) -> dict[str, object]:
    return {
        "problemCount": findings.total(Severity.PROBLEM),
        "noteCount": findings.total(Severity.NOTE),
        "counts": [
            {"severity": severity.value, "kind": kind.value, "count": count}
            for (severity, kind), count in findings.counts.items()
        ],
        "kept": [plain(finding) for finding in findings],
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
