"""A Django app whose management command consumes orders."""
