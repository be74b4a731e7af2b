"""Reports as JSON: dataclasses and named tuples become objects with camelCase members."""

import json
from typing import Final

from flintmq.cli.output.plain_values import plain as plain_value
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
    return plain_value(value, _findings)


def _findings(findings: object) -> dict[str, object] | None:
    if not isinstance(findings, Findings):
        return None
    return {
        "problemCount": findings.total(Severity.PROBLEM),
        "noteCount": findings.total(Severity.NOTE),
        "counts": [
            {"severity": severity.value, "kind": kind.value, "count": count}
            for (severity, kind), count in findings.counts.items()
        ],
        "kept": [plain(finding) for finding in findings],
    }
