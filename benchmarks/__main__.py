"""`make bench`: every benchmark, one after the other."""

import sys

from benchmarks import figure3, loss

if __name__ == "__main__":
    loss.main(sys.argv[1:])
    sys.argv = sys.argv[:1]
    figure3.main()
