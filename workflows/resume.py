"""`python -m workflows.resume`: what `fnbandit resume` does, from a checkout, for cluster jobs."""

import sys

from workflows.command_line import main

if __name__ == "__main__":
    sys.exit(main(["resume", *sys.argv[1:]]))
