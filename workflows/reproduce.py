"""`python -m workflows.reproduce`: the same as `fnbandit reproduce`, from a checkout, for cluster jobs."""

from workflows.command_line import entry

if __name__ == "__main__":
    entry("reproduce")
