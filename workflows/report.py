"""`python -m workflows.report`: the same as `fnbandit report`, from a checkout, for cluster jobs."""

from workflows.command_line import entry

if __name__ == "__main__":
    entry("report")
