"""Prints 4 MB to stdout and stderr and ends with code 0."""

import sys

for _ in range(2000):
    sys.stdout.write("o" * 999 + "\n")
    sys.stderr.write("e" * 999 + "\n")
