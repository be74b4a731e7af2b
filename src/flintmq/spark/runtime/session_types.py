"""The types of PySpark that the command line passes on without knowing PySpark."""

from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

Session: TypeAlias = SparkSession
"""A running Spark with its SQL."""

Table: TypeAlias = DataFrame
"""Rows of a query or of a micro-batch."""
