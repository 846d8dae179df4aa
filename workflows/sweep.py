"""`python -m workflows.sweep`: the same as `fnbandit sweep`, from a checkout, for cluster jobs."""

from workflows.command_line import entry

if __name__ == "__main__":
    entry("sweep")
