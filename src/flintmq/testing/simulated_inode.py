"""One simulated file: what the process sees of it, and what is on the disk.

A sync copies pages from the first content to the second.  A power failure leaves for every page
that was not copied the old, the new, or a torn content.
"""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Final

PAGE_SIZE: Final = 4096
"""What the kernel writes back at once."""

SECTOR_SIZE: Final = 512
"""What a disk writes at once."""

WORD_SIZE: Final = 8
"""What memory never tears."""


class Inode:
    """One file, whatever its names are."""

    def __init__(self, content: bytearray, *, modified_ms: int) -> None:
        self.content = content
        """What the process sees; its views are views of this very object."""
        self.durable = b""
        """What is on the disk: shorter than the content while its size is not synced."""
        self.sizes = [len(content)]
        """Every size the file had since the last sync."""
        self.modified_ms = modified_ms
        self.reserved: set[int] = set()
        """The pages that have blocks on the disk."""
        self.region_count = 0
        self._durably_reserved: set[int] = set()
        self._dropped: dict[int, bytes] = {}

    def replace(self, data: bytes) -> None:
        """Truncate the file and write it anew, as opening with O_TRUNC does."""
        assert self.region_count == 0, "a mapped file is cut under its readers"
        self.content[:] = data
        self.sizes += [0, len(data)]
        self.reserved = set(range(_page_count(len(data))))

    def dirty_pages(self) -> Iterator[int]:
        """Yield the numbers of the pages whose content is not on the disk."""
        if self.content == self.durable:
            return
        for page in range(_page_count(len(self.content))):
            if self._page(page) != _page_of(self.durable, page, size=len(self.content)):
                yield page

    def write_back(self, wanted: Callable[[int], bool] = lambda page: True) -> bool:
        """Copy dirty pages to the disk, and the size with them; return whether there were any.

        A page whose write has failed counts as clean, as in Linux, until it is written again.
        """
        if not self._dropped and self.content == self.durable:
            return False
        self._dropped = {
            page: lost for page, lost in self._dropped.items() if self._page(page) == lost
        }
        pages = [page for page in self.dirty_pages() if wanted(page)]
        if not pages and len(self.durable) == len(self.content):
            return False
        image = bytearray(self.durable[: len(self.content)].ljust(len(self.content), b"\0"))
        for page in pages:
            start = page * PAGE_SIZE
            content = self._page(page)
            if page not in self._dropped:
                image[start : start + len(content)] = content
        self.durable = bytes(image)
        return True

    def sync(self) -> bool:
        """Write everything back; return whether there was anything to write."""
        changed = self.write_back()
        self._keep_size_and_blocks()
        return changed

    def _keep_size_and_blocks(self) -> None:
        """Have a power failure leave the size and the blocks as they are now."""
        self.sizes.clear()
        self._durably_reserved = self.reserved.copy()

    def drop(self) -> None:
        """Fail to write back: what is dirty now will be taken for clean from here on."""
        for page in self.dirty_pages():
            self._dropped[page] = self._page(page)

    def touch(self, pages: Iterable[int]) -> None:
        """Take pages for dirty again, because they were written, be it with the same bytes."""
        for page in pages:
            self._dropped.pop(page, None)

    def unreserved_pages(self) -> list[int]:
        """Return the dirty pages that have no blocks: a full disk would have killed the process."""
        return [page for page in self.dirty_pages() if page not in self.reserved]

    def copy(self, visible: bytes) -> "Inode":
        """Return the same file as another process finds it, with ``visible`` as its content."""
        other = Inode(bytearray(visible), modified_ms=self.modified_ms)
        other.durable = self.durable
        other.sizes = self.sizes.copy()
        other.reserved = self.reserved.copy()
        other._durably_reserved = self._durably_reserved.copy()
        other._dropped = self._dropped.copy()
        return other

    def after_power_loss(self, content: bytes) -> "Inode":
        """Return the file as it is found when ``content`` is what survived."""
        other = Inode(bytearray(content), modified_ms=self.modified_ms)
        count = _page_count(len(content))
        other.reserved = {page for page in self._durably_reserved if page < count}
        other.reserved.update(page for page in range(count) if other._page(page).strip(b"\0"))
        other.durable = content
        other._keep_size_and_blocks()
        return other

    def _page(self, page: int) -> bytes:
        return bytes(self.content[page * PAGE_SIZE : (page + 1) * PAGE_SIZE])


class Survival:
    """How much of what was not synced a power failure leaves in one file."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._new_share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        self._torn_share = rng.choice((0.0, 0.0, 0.3, 1.0))

    def content_of(self, inode: Inode, visible: bytes) -> bytes:
        """Choose for each page the old, the new or a torn content, and for the size any it had."""
        size = self._rng.choice([len(inode.durable), len(visible), *inode.sizes])
        pages = []
        for page in range(_page_count(size)):
            old = _page_of(inode.durable, page, size=size)
            new = _page_of(visible, page, size=size)
            pages.append(old if old == new else self._mix(old, new))
        return b"".join(pages)

    def _mix(self, old: bytes, new: bytes) -> bytes:
        if self._rng.random() >= self._torn_share:
            return new if self._rng.random() < self._new_share else old
        if self._rng.random() < 0.5:
            sectors = range(0, len(old), SECTOR_SIZE)
            return b"".join(self._rng.choice((old, new))[at : at + SECTOR_SIZE] for at in sectors)
        cut = self._rng.randrange(0, len(old) + 1, WORD_SIZE)
        head, tail = self._rng.choice(((old, new), (new, old)))
        return head[:cut] + tail[cut:]


def pages_of(start: int, end: int) -> Iterable[int]:
    """Return the numbers of the pages that hold the bytes from ``start`` to ``end``."""
    return range(start // PAGE_SIZE, _page_count(end))


def _page_count(size: int) -> int:
    return -(-size // PAGE_SIZE)


def _page_of(content: bytes, page: int, *, size: int) -> bytes:
    """Return a page of ``content``, seen as a file of ``size`` bytes with zeros at its end."""
    start = page * PAGE_SIZE
    end = min(start + PAGE_SIZE, size)
    return content[start:end].ljust(end - start, b"\0")
