"""Options by which commands name brokers, topics and groups, with the letters of mqadmin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])

topic_option = click.option("-t", "--topic", required=True, help="Name of the topic.")


def broker_or_cluster(command: _Decorated) -> _Decorated:
    """Add ``-b`` and ``-c``, of which one is given."""
    for option in (
        click.option("-c", "--cluster", help="All brokers of this cluster."),
        click.option("-b", "--broker", metavar="ADDR|NAME", help="One broker."),
    ):
        command = option(command)
    return command


group_option = click.option("-g", "--group", required=True, help="Name of the consumer group.")
