"""Append groups: sends that came together, encoded together in Python or in machine code."""

__all__ = [
    "batch_items",
    "compiled_encoder",
    "encoder_choice",
    "sends",
]
