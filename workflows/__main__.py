"""`python -m workflows run ...`: the command `fnbandit`, from a checkout, for cluster jobs."""

from workflows.command_line import entry

if __name__ == "__main__":
    entry()
