"""Recorded queries of the key index, as a client sees them."""

from typing import Any

from tests.kits.processes.java_cluster import (
    KeyQuery,
    is_user_topic,
)

LONG_MAX = 2**63 - 1


def keyed_queries(
    whole: dict[str, Any], messages: list[dict[str, Any]]
) -> dict[KeyQuery, list[int]]:
    """Return the recorded index queries as a client sees them: without hash collisions."""
    holders: dict[KeyQuery, set[int]] = {}
    for message in messages:
        for key in message["properties"].get("KEYS", "").split():
            query = KeyQuery(message["topic"], key)
            holders.setdefault(query, set()).add(message["physicalOffset"])
    queries = {}
    for recorded in whole["indexQueries"]:
        query = KeyQuery(recorded["topic"], recorded["key"])
        is_whole = recorded["begin"] == 0 and recorded["end"] == LONG_MAX
        if is_whole and recorded["maxNum"] == 64 and query in holders:
            queries[query] = sorted(holders[query].intersection(recorded["offsets"]))
    return {query: found for query, found in queries.items() if is_user_topic(query.topic)}
