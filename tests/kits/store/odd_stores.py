"""Stores of many files, with every kind of message that is out of the ordinary."""

from pathlib import Path

from flintmq.format.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import START_MS, message, small_config

PROPERTIES: tuple[dict[str, str], ...] = (
    {"TAGS": "größe", "KEYS": "schlüssel 鍵 key", "UNIQ_KEY": "😀"},
    {"TAGS": "A" * 300, "KEYS": "a  b   c ", "UNIQ_KEY": "u" * 200},
    {"KEYS": " ".join(f"k{number}" for number in range(25))},
    {"KEYS": "  ", "TAGS": ""},
    {"NOTAGS": "x", "TAG": "y", "XKEYS": "z", "UNIQ_KEYS": "w"},
    {},
)
"""Texts that are not ASCII, many keys, empty values, names that only begin alike."""


def make_odd_store(root: Path, *, count: int = 60) -> Path:
    """Write a store whose files have rolled many times, with odd messages between plain ones."""
    clock = ManualClock(START_MS)
    config = small_config(root, enable_multi_dispatch=True, enable_lmq=True)
    with MessageStore.open(config, clock=clock, background=False) as store:
        for number in range(count):
            assert store.put(message(number)).ok
            _put_odd(store, number)
            clock.advance(300)
        store.dispatch()
    return root


def _put_odd(store: MessageStore, number: int) -> None:
    odd = PROPERTIES[number % len(PROPERTIES)]
    assert store.put(message(number, topic="größen", queues=3, properties=odd)).ok
    assert store.put(message(number, topic="odd", queues=1, properties=odd)).ok
    if number % 7 == 0:
        level = {"DELAY": str(number % 5), "KEYS": f"late-{number}", "TAGS": "later"}
        assert store.put(message(number, properties=level)).ok
    if number % 5 == 0:
        names = {"INNER_MULTI_DISPATCH": f"%LMQ%a,%LMQ%{number % 3}", "KEYS": "m", "TAGS": "T"}
        assert store.put(message(number, properties=names)).ok
    if number % 4 == 0:
        for sys_flag in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            half = message(number, topic="half", properties={"KEYS": "half", "TAGS": "H"})
            half.sys_flag |= sys_flag
            assert store.put(half).ok
