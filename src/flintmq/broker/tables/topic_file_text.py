"""The text of the file of topics, made of what was made before.

Each topic that is new has the whole file written.  With thousands of topics it would take many
times as long to make the text of all of them again as to write it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format import fastjson
from flintmq.format.wire.bodies.topics import topic_to_json, version_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.model.data_version import DataVersion
    from flintmq.model.topic_config import TopicConfig

_TABLE_START = b',\n\t"topicConfigTable":{'


class TopicFileText:
    """Makes the text of the file; one thread at a time may ask for it."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicConfig] = {}
        """What the last file had."""
        self._texts: dict[str, bytes] = {}
        """The text of each of these topics, by their names, which are sorted."""

    def encode(self, topics: Sequence[TopicConfig], version: DataVersion) -> bytes:
        """Return the same bytes as the encoding of `topic_table_to_json` has."""
        known, texts = self._topics, self._texts
        changed = [topic for topic in topics if known.get(topic.name) is not topic]
        for topic in changed:
            member = fastjson.dumps_member(topic.name, topic_to_json(topic), depth=1)
            texts[topic.name] = member.encode()
            known[topic.name] = topic
        if len(texts) > len(topics):
            names = {topic.name for topic in topics}
            for name in [one for one in texts if one not in names]:
                del texts[name], known[name]
        if changed:
            # New ones stand behind the others, which are sorted: that is done fast.
            self._texts = texts = {name: texts[name] for name in sorted(texts)}
        head = "{" + fastjson.dumps_member("dataVersion", version_to_json(version), depth=0)
        parts = list(texts.values()) or [b""]
        # One join of megabytes, and no further copy of them.
        parts[0] = head.encode() + _TABLE_START + parts[0]
        parts[-1] += b"\n\t}\n}" if texts else b"}\n}"
        return b",".join(parts)
