"""The property string of a message as it is stored."""

from flintmq.format.properties import NAME_END, PAIR_END, encode_properties
from flintmq.model.property_names import CLUSTER, WAIT


def stored_text(properties: dict[str, str]) -> bytes:
    """Return the property string that is stored; WAIT is for the broker only."""
    if WAIT not in properties:
        return encode_properties(properties)
    return encode_properties({name: one for name, one in properties.items() if name != WAIT})


def received_properties(text: str | None, cluster: str) -> tuple[dict[str, str], bytes]:
    """Return the properties that came with a message, and the string to store for them.

    It is what decoding, adding the cluster and `stored_text` would give, in one pass.
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
