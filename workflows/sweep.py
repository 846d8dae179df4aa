"""`python -m workflows.sweep`: what `fnbandit sweep` does, from a checkout, for cluster jobs."""

import sys

from workflows.command_line import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
