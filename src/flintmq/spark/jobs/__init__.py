"""The heavy work on store directories and live topics, in parallel: one package for each job.

Each job is a function of a Spark session that returns a DataFrame or a typed report; the command
``flintmq pipeline`` runs them from a terminal.  In Python, ``from flintmq.spark.jobs.stats import
stats`` gives such a function.
"""

__all__ = [
    "archive",
    "damages",
    "diff",
    "job_input",
    "query",
    "rebuild",
    "replay",
    "stats",
    "store_tables",
    "stream",
    "verify",
]
