"""The names on a simulated disk: those the process sees, and those a power failure leaves.

A directory has two tables of names.  The process sees one; the other is on the disk.  A journal
keeps the operations between them in order, and a sync of a directory takes its own out.
"""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

from flintmq.testing.simulated_inode import PAGE_SIZE, Inode


class Directory:
    """The names in one directory: those the process sees, and those on the disk."""

    def __init__(self) -> None:
        self.visible: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node: TypeAlias = Inode | Directory


class NameChange(NamedTuple):
    """A name that leads to another node from now on, or to none."""

    directory: Directory
    name: str
    node: Node | None


Tables: TypeAlias = dict[Directory, dict[str, Node]]


class NameJournal:
    """The operations on names that no sync has covered, in the order they happened.

    An operation (a rename has two changes) survives whole or not at all.  One that touches a name
    needs the earlier ones that touched it: that is the order every journaling file system keeps.
    """

    def __init__(self) -> None:
        self._operations: list[tuple[NameChange, ...]] = []

    def add(self, *changes: NameChange) -> None:
        """Let an operation happen: seen at once, durable after a sync."""
        self._operations.append(changes)
        for directory, name, node in changes:
            _set(directory.visible, name, node)

    def sync(self, directory: Directory) -> None:
        """Make the names in ``directory`` durable, and what they need elsewhere."""
        wanted = {
            number
            for number, changes in enumerate(self._operations)
            for change in changes
            if change.directory is directory
        }
        if not wanted:
            return
        wanted = self._with_needed(wanted)
        for number in sorted(wanted):
            for change in self._operations[number]:
                _set(change.directory.durable, change.name, change.node)
        self._operations = [
            changes for number, changes in enumerate(self._operations) if number not in wanted
        ]

    def copy(self, copy_of: Callable[[Node], Node]) -> "NameJournal":
        """Return the same journal about copies of the nodes."""
        other = NameJournal()
        for changes in self._operations:
            copied = []
            for directory, name, node in changes:
                in_directory = copy_of(directory)
                assert isinstance(in_directory, Directory)
                copied.append(NameChange(in_directory, name, node and copy_of(node)))
            other._operations.append(tuple(copied))
        return other

    def all_survive(self) -> set[int]:
        """Choose every operation."""
        return set(range(len(self._operations)))

    def some_survive(self, rng: Random) -> set[int]:
        """Choose a random prefix, and at times a few later operations that need nothing else."""
        count = len(self._operations)
        prefix = rng.randint(0, count)
        chosen = set(range(prefix))
        if rng.random() < 0.5:
            later = {number for number in range(prefix, count) if rng.random() < 0.3}
            chosen |= self._with_needed(later)
        return chosen

    def tables(self, survivors: set[int]) -> Callable[[Directory], dict[str, Node]]:
        """Return how to look up the names of a directory when ``survivors`` happened."""
        changed: Tables = {}
        for number in sorted(survivors):
            for directory, name, node in self._operations[number]:
                _set(changed.setdefault(directory, directory.durable.copy()), name, node)
        return lambda directory: changed.get(directory, directory.durable)

    def _with_needed(self, wanted: set[int]) -> set[int]:
        """Add the earlier operations on the names that the wanted ones touch."""
        needed = set[int]()
        names = set[tuple[int, str]]()
        for number in range(max(wanted, default=-1), -1, -1):
            touched = {(id(change.directory), change.name) for change in self._operations[number]}
            if number in wanted or touched & names:
                needed.add(number)
                names |= touched
        return needed


class Disk:
    """A tree of directories and files, with the operations on names that are not synced.

    What cannot be done raises the OSError that Linux would give.
    """

    def __init__(self, root: Path) -> None:
        """Make a disk on which the empty directory ``root`` is durably there."""
        self.journal = NameJournal()
        self._tree = Directory()
        directory = self._tree
        for name in root.parts[1:]:
            child = Directory()
            directory.visible[name] = directory.durable[name] = child
            directory = child

    # -- walking -----------------------------------------------------------------------------

    def find(self, path: Path) -> Node | None:
        """Return what a path leads to."""
        root, *names = path.parts
        assert root == path.root, path
        node: Node | None = self._tree
        for name in names:
            if not isinstance(node, Directory):
                return None
            node = node.visible.get(name)
        return node

    def inode(self, path: Path) -> Inode:
        """Return the file a path leads to."""
        node = self.find(path)
        if isinstance(node, Inode):
            return node
        raise os_error(errno.ENOENT if node is None else errno.EISDIR)

    def directory(self, path: Path) -> Directory:
        """Return the directory a path leads to."""
        node = self.find(path)
        if isinstance(node, Directory):
            return node
        raise os_error(errno.ENOENT if node is None else errno.ENOTDIR)

    def below(self, path: Path) -> list[Node]:
        """Return a directory and all that is seen below it."""
        nodes: list[Node] = [self.directory(path)]
        for node in nodes:
            if isinstance(node, Directory):
                nodes += node.visible.values()
        return nodes

    def make_directories(self, path: Path) -> Directory:
        """Return the directory a path leads to, made with those above it where they are missing."""
        directory = self._tree
        for name in path.parts[1:]:
            node = directory.visible.get(name)
            if node is None:
                node = Directory()
                self.journal.add(NameChange(directory, name, node))
            if not isinstance(node, Directory):
                raise os_error(errno.ENOTDIR)
            directory = node
        return directory

    def inodes(self, *, seen_only: bool = False) -> Iterator[Inode]:
        """Yield every file that has a name, seen or on the disk."""
        met: set[Node] = set()
        nodes: list[Node] = [self._tree]
        while nodes:
            node = nodes.pop()
            if node in met:
                continue
            met.add(node)
            if isinstance(node, Directory):
                nodes += node.visible.values()
                nodes += [] if seen_only else node.durable.values()
            else:
                yield node

    def contents(self, path: Path) -> Iterator[tuple[str, bytes | None]]:
        """Yield all that is seen below a directory: contents of files, None for directories."""
        found = [(str(path), self.directory(path))]
        for above, directory in found:
            for name, node in directory.visible.items():
                if isinstance(node, Directory):
                    found.append((f"{above}/{name}", node))
                    yield f"{above}/{name}", None
                else:
                    yield f"{above}/{name}", bytes(node.content)

    def used(self) -> int:
        """Return the bytes of all blocks that files have; a removed file has none."""
        return sum(len(inode.reserved) * PAGE_SIZE for inode in self.inodes(seen_only=True))

    # -- what a next start finds -------------------------------------------------------------

    def copy(self, seen: Callable[[Inode], bytes]) -> "Disk":
        """Return the same disk for another process, which sees what this one saw."""
        copies: dict[Node, Node] = {}

        def copy_of(node: Node) -> Node:
            if node not in copies:
                if isinstance(node, Inode):
                    copies[node] = node.copy(seen(node))
                else:
                    copies[node] = other = Directory()
                    other.visible = {name: copy_of(it) for name, it in node.visible.items()}
                    other.durable = {name: copy_of(it) for name, it in node.durable.items()}
            return copies[node]

        tree = copy_of(self._tree)
        assert isinstance(tree, Directory)
        disk = Disk(Path("/"))
        disk._tree = tree
        disk.journal = self.journal.copy(copy_of)
        return disk

    def after_power_loss(self, survivors: set[int], content_of: Callable[[Inode], bytes]) -> "Disk":
        """Return the disk that is found when these operations and contents survived."""
        names_in = self.journal.tables(survivors)
        found: dict[Inode, Inode] = {}

        def copy_of(directory: Directory) -> Directory:
            other = Directory()
            for name, node in names_in(directory).items():
                if isinstance(node, Directory):
                    other.visible[name] = copy_of(node)
                    continue
                if node not in found:
                    found[node] = node.after_power_loss(content_of(node))
                other.visible[name] = found[node]
            other.durable = other.visible.copy()
            return other

        disk = Disk(Path("/"))
        disk._tree = copy_of(self._tree)
        return disk


def os_error(number: int) -> OSError:
    """Return the OSError of an error number, with the text Linux gives it."""
    return OSError(number, os.strerror(number))


def _set(table: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        table.pop(name, None)
    else:
        table[name] = node
