"""`python -m workflows.run`: the same as `fnbandit run`, from a checkout, for cluster jobs."""

from workflows.command_line import entry

if __name__ == "__main__":
    entry("run")
