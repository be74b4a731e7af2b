"""A soak run: real servers under load and random faults, judged from outside."""
