"""Reads numbers from standard input, and doubles them."""

import sys

for line in sys.stdin:
    print(2 * int(line))
