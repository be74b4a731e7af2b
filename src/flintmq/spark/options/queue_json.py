"""JSON that says something of queues, as options and RocketMQ's own Spark connector have it.

A value stands under topic, broker and queue id; the level of the brokers may be left out, which
then holds for all of them:

    {"orders": {"broker-a": {"0": 17, "1": -2}}}
    {"orders": {"0": 17, "1": -2}}
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from flintmq.spark.errors import OptionError
from flintmq.spark.options.option_values import parse_json

Named: TypeAlias = tuple[str | None, str, int]
"""Broker (None for all of them), topic and queue id."""

_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")


def queue_values(
    name: str, text: str, form: str, noun: str = "offset"
) -> Iterator[tuple[Named, int]]:
    """Yield what the option ``name`` says of each queue; ``form`` tells a user how it is written.

    Raises:
        OptionError: the text has another form.
    """
    for named, value in queue_items(name, text, form):
        if not isinstance(value, int) or isinstance(value, bool):
            raise OptionError(f"{name} of {named[1]!r} {named[2]}: no {noun}: {value!r}")
        yield named, value


def queue_items(name: str, text: str, form: str) -> Iterator[tuple[Named, object]]:
    """Yield what stands under each queue, whatever it is; OptionError as `queue_values`."""
    table = parse_json(name, text)
    if not isinstance(table, dict):
        raise OptionError(f"{name} is {form}, not {text[:80]!r}")
    for topic, level in table.items():
        if not isinstance(level, dict) or not level:
            raise OptionError(f"{name} of the topic {topic!r} names no queue; it is {form}")
        brokers = {None: level} if all(map(_NUMBER.fullmatch, level)) else level
        for broker, queues in brokers.items():
            if not isinstance(queues, dict) or not queues:
                raise OptionError(f"{name} of the topic {topic!r} names no queue; it is {form}")
            for queue_id, value in queues.items():
                if not _NUMBER.fullmatch(queue_id):
                    raise OptionError(f"{name} of the topic {topic!r}: no queue id: {queue_id!r}")
                yield (broker, topic, int(queue_id)), value
