"""FlintMQ: Apache RocketMQ 4.9 rebuilt in Python, on the same files and the same wire."""

from importlib.metadata import version

__version__ = version("flintmq")

__all__ = ["__version__"]
