"""Whether a server can do its work, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    ReadinessCheck: TypeAlias = Callable[[], str]
    """Returns what is wrong in a few words, and nothing if nothing is."""


def readiness_report(checks: Mapping[str, ReadinessCheck]) -> tuple[bool, str]:
    """Return whether a server is ready, and a text with a line for each check."""
    lines, is_ready = [], True
    for name, check in checks.items():
        try:
            reason = check()
        except Exception as error:  # A server that cannot tell is not ready.
            reason = f"{type(error).__name__}: {error}"
        is_ready = is_ready and not reason
        lines.append(f"[-] {name}: {_one_line(reason)}" if reason else f"[+] {name}: ok")
    lines.append("ready" if is_ready else "not ready")
    return is_ready, "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
