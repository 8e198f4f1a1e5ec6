"""The Python API: what the command line can do, for notebooks, sweeps and web pages. See docs/python.md.

`gpusched` has its names. A command takes one of its modules and must not wait for the others: nothing is imported here.
"""
