"""The table of all settings, made from the code: ``python -m tools.settings_table``.

A setting has a meaning if some code reads the field that carries it; so the table is true by
itself, and `tests/unit/settings/test_settings_table.py` fails when the document is not the table.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from flintmq.broker.config import EDITABLE as BROKER_EDITABLE
from flintmq.broker.config import SETTINGS as BROKER_SETTINGS
from flintmq.broker.config import BrokerConfig
from flintmq.namesrv.config import EDITABLE as NAMESRV_EDITABLE
from flintmq.namesrv.config import SETTINGS as NAMESRV_SETTINGS
from flintmq.namesrv.config import NamesrvConfig
from flintmq.settings.setting import Owner, Setting
from flintmq.store.config import SETTINGS as STORE_SETTINGS
from flintmq.store.config import StoreConfig

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "operating" / "settings.md"
BEGIN, END = "<!-- generated: settings -->", "<!-- end -->"

REFUSED: Final = {
    "disableConsumeIfConsumerReadSlowly": "true",
    "enableDLegerCommitLog": "true",
    "fetchNamesrvAddrByAddressServer": "true",
    "messageStorePlugIn": "com.example.Plug",
    "tls.test.mode.enable": "true",
}
"""Values with which no server starts."""

SHOWN_ONLY: Final = frozenset(
    {
        "endTransactionPoolQueueCapacity",
        "pullThreadPoolQueueCapacity",
        "queryThreadPoolQueueCapacity",
    }
)
"""Read by the status alone."""

MADE_AT_THE_START: Final = frozenset(
    {"brokerIP1", "brokerIP2", "brokerName", "kvConfigPath", "configStorePath", "storePathRootDir"}
    | {"bindAddress"}
)
"""Settings whose value, unless set, is found on the machine."""


class Row(NamedTuple):
    """One setting in the table."""

    key: str
    of: str
    default: str
    state: str
    changeable: str


def read_fields() -> frozenset[str]:
    """Return the names of all attributes that some code of the package reads."""
    found = set()
    for path in (ROOT / "src" / "flintmq").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
    return frozenset(found)


def rows() -> list[Row]:
    """Return all settings, by key."""
    read = read_fields()
    tables: list[tuple[str, Mapping[str, Setting], object, frozenset[str]]] = [
        ("broker", BROKER_SETTINGS, BrokerConfig(), BROKER_EDITABLE),
        ("broker", STORE_SETTINGS, StoreConfig(root=Path("store")), BROKER_EDITABLE),
        ("name server", NAMESRV_SETTINGS, NamesrvConfig(), NAMESRV_EDITABLE),
    ]
    by_key: dict[str, Row] = {}
    for of, settings, values, editable in tables:
        for name, setting in settings.items():
            default = setting.codec.render(getattr(values, name))
            is_by_machine = "Thread" in setting.key and "Capacity" not in setting.key
            if is_by_machine or setting.key in MADE_AT_THE_START:
                default = ""
            row = Row(
                setting.key,
                of,
                default or "",
                _state(name, setting, read),
                "yes" if setting.key in editable else "",
            )
            known = by_key.get(setting.key)
            if known is not None and known.of != of:
                row = known._replace(of="both")
            elif known is not None:
                row = known if known.state == "honoured" else row
            by_key[setting.key] = row
    return sorted(by_key.values(), key=lambda row: row.key.lower())


def _state(name: str, setting: Setting, read: frozenset[str]) -> str:
    if setting.key in REFUSED:
        return f"`{REFUSED[setting.key]}` is refused"
    if name not in read or setting.key in SHOWN_ONLY:
        return "without meaning here"
    return "ours" if setting.owner is Owner.FLINTMQ else "honoured"


def render() -> str:
    """Return the table in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| Key | Of | Unless set | State | While running |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows():
        default = f"`{row.default}`" if row.default else ""
        yield f"| `{row.key}` | {row.of} | {default} | {row.state} | {row.changeable} |"


def written(page: str) -> str:
    """Return a page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
