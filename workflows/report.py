"""`python -m workflows.report`: what `fnbandit report` does, from a checkout, for cluster jobs."""

import sys

from workflows.command_line import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
