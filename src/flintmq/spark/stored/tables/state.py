"""JSON state of a store for tables: the file, else its backup, as a broker reads it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from flintmq.offline.layout import StoreLayout
from flintmq.offline.verify.verify_state import EMPTY_STATE, decode_state
from flintmq.spark.errors import StateError
from flintmq.spark.rows.columns import BOOLEAN, INT, STRING, ColumnSet

_BACKUP: Final = ".bak"


def read_state(layout: StoreLayout, name: str) -> Mapping[Any, Any]:
    """Return the state of ``config/{name}``; nothing where there is none.

    StateError when neither the file nor its backup can be decoded, or it is no JSON object.
    """
    path = layout.root / "config" / name
    problem = ""
    for candidate in (path, path.with_name(path.name + _BACKUP)):
        state, reason = _decode(layout, candidate)
        if state is not None:
            return state
        problem = problem or reason
    if problem:
        raise StateError(str(path), problem)
    return {}


def _decode(layout: StoreLayout, path: Path) -> tuple[Mapping[Any, Any] | None, str]:
    state, reason = decode_state(layout, path)
    if isinstance(state, dict):
        return state, ""
    # A broker takes a file without a word for none, and goes on to the backup.
    if state is None:
        return None, "" if reason == EMPTY_STATE else reason
    return None, "is no JSON object"


def members(state: Mapping[Any, Any], name: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Yield the members of a table in a state that are objects themselves, by name."""
    table = state.get(name)
    if isinstance(table, dict):
        yield from ((str(key), value) for key, value in table.items() if isinstance(value, dict))


def typed(value: Any, name: str, columns: ColumnSet) -> Any:
    """Return a value if a column can hold it, else None: a state file may say anything."""
    kind = columns.kinds[name]
    if kind == BOOLEAN:
        return value if isinstance(value, bool) else None
    if kind == STRING:
        return value if isinstance(value, str) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    bits = 31 if kind == INT else 63
    return value if -(1 << bits) <= value < 1 << bits else None
