"""Loops over the bytes of a log, compiled to machine code by numba.

A kernel takes numpy arrays and numbers and gives such.  It decides nothing that the format does
not say plainly: what is out of the ordinary it leaves to the code in Python.
"""
