"""Salvaging: a sound store made of everything that can be proven in a broken one."""

__all__ = [
    "store_salvage",
]
