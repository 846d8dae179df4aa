"""`python -m workflows.run`: what `fnbandit run` does, from a checkout, for cluster jobs."""

import sys

from workflows.command_line import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
