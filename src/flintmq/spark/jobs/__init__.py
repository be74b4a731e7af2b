"""The heavy work on store directories, in parallel: one module for each job.

Each job is a function of a Spark session that returns a DataFrame or a typed report; the command
``flintmq pipeline`` runs them from a terminal.
"""
