"""SQL92 filters: expressions over the properties of messages, compiled and evaluated as Java does.

Nothing here does I/O.  The parser library is loaded with the first expression that is compiled.
"""

__all__ = ["bloom", "errors", "expression_limits", "filter_entries", "sql92"]
