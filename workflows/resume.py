"""`python -m workflows.resume`: the same as `fnbandit resume`, from a checkout, for cluster jobs."""

from workflows.command_line import entry

if __name__ == "__main__":
    entry("resume")
