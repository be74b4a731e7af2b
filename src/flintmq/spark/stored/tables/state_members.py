"""What the tables ``topics`` and ``groups`` have in common: rows from one JSON state file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from flintmq.offline.layout import find_store
from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.columns import STRING, ColumnSet
from flintmq.spark.stored.tables.reader import StoreSplit, root_of
from flintmq.spark.stored.tables.state import members, read_state, typed


def member_columns(name: str, fields: Mapping[str, Any]) -> ColumnSet:
    """Return the columns of a table whose rows are members of a state file, called ``name``."""
    return ColumnSet({name: STRING, **fields, "brokerName": STRING, "path": STRING})


class StateMemberRowSource:
    """One row for each member of a table in a JSON state file."""

    file: ClassVar[str]
    """The name of the file in ``config``."""
    member_table: ClassVar[str]
    """The name of the table in the file."""
    name: ClassVar[str]
    """The column that holds the name of a member."""
    fields: ClassVar[Sequence[str]]
    """The columns that are fields of a member."""
    columns: ColumnSet

    def splits(self, store: StoreSplit, options: ReadOptions) -> Sequence[StoreSplit]:
        """Return the store itself: it has one small file."""
        return [store]

    def rows(
        self, split: StoreSplit, options: ReadOptions
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield all members at once."""
        state = read_state(find_store(root_of(split)), self.file)
        found = {
            name: member
            for name, member in members(state, self.member_table)
            if self.is_wanted(name, options)
        }
        columns: dict[str, list[Any]] = {
            field: [typed(member.get(field), field, self.columns) for member in found.values()]
            for field in self.fields
        }
        yield len(found), {self.name: list(found), **columns}

    def is_wanted(self, name: str, options: ReadOptions) -> bool:
        """Whether the options ask for a member."""
        return True
