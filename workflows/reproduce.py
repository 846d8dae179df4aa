"""`python -m workflows.reproduce`: what `fnbandit reproduce` does, from a checkout, for cluster jobs."""

import sys

from workflows.command_line import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
