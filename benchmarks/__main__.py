"""`make bench`: every benchmark, one after the other."""

import sys

from benchmarks import loss

if __name__ == "__main__":
    loss.main(sys.argv[1:])
