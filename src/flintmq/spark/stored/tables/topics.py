"""The table ``topics``: what config/topics.json says of each topic."""

from typing import Final

from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.columns import BOOLEAN, INT, STRING
from flintmq.spark.stored.tables.state_members import StateMemberRowSource, member_columns

_FIELDS: Final = {
    "readQueueNums": INT,
    "writeQueueNums": INT,
    "perm": INT,
    "topicFilterType": STRING,
    "topicSysFlag": INT,
    "order": BOOLEAN,
}


class TopicRowSource(StateMemberRowSource):
    """One row for each topic that the broker knows."""

    file = "topics.json"
    member_table = "topicConfigTable"
    name = "topic"
    fields = tuple(_FIELDS)
    columns = member_columns("topic", _FIELDS)

    def is_wanted(self, name: str, options: ReadOptions) -> bool:
        """Whether the option ``topic`` names the topic, or none."""
        return options.topics is None or name in options.topics
