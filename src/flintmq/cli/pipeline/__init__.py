"""``flintmq pipeline``: the jobs on Spark as commands."""
