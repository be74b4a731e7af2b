"""What a topic may be called."""

import re
from typing import Final

TOPIC_LENGTH_MAX: Final = 127
_VALID: Final = re.compile(r"[%|A-Za-z0-9_-]+")


def name_fault(topic: str) -> str | None:
    """Return what is wrong with the name of a topic; None if nothing is."""
    if not topic.strip():
        return "the topic is blank"
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"the topic is longer than {TOPIC_LENGTH_MAX} characters"
    if _VALID.fullmatch(topic) is None:
        return "the topic has characters other than % | A-Z a-z 0-9 _ -"
    return None
