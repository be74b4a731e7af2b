"""A request of ours whose frame its sender has made already."""

from __future__ import annotations

from typing import NamedTuple


class EncodedRequest(NamedTuple):
    """A request as it goes over the wire; to a connection it is what a `Command` is."""

    code: int
    opaque: int
    """The number that the connection gave, which the frame holds too."""
    frame: bytes
