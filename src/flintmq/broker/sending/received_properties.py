"""The properties text of a message as it is stored."""

from flintmq.format.properties import NAME_END, PAIR_END, encode_properties
from flintmq.model.property_names import CLUSTER, WAIT


def stored_text(properties: dict[str, str]) -> bytes:
    """Return the properties text that is stored: all but WAIT, which is for the broker only."""
    if WAIT not in properties:
        return encode_properties(properties)
    return encode_properties({name: one for name, one in properties.items() if name != WAIT})


def received_properties(text: str | None, cluster: str) -> tuple[dict[str, str], bytes]:
    """Return the properties that came with a message, and the text to store for them.

    Decoding, adding the cluster and `stored_text` would give the same; this is one pass.
    """
    properties: dict[str, str] = {}
    kept = []
    for segment in (text or "").split(PAIR_END):
        name, _, value = segment.partition(NAME_END)
        if name and value:
            properties[name] = value
            if name not in (WAIT, CLUSTER):
                kept.append(segment)
    is_plain = len(kept) == len(properties) - (WAIT in properties) - (CLUSTER in properties)
    properties[CLUSTER] = cluster
    if not is_plain:
        return properties, stored_text(properties)  # Of two with one name the later counts.
    kept.append(f"{CLUSTER}{NAME_END}{cluster}")
    return properties, PAIR_END.join(kept).encode("utf-8", "replace")
