"""`python -m workflows.resume`: what `fnbandit resume` does, from a checkout, for cluster jobs."""

from workflows.command_line import entry

if __name__ == "__main__":
    entry("resume")
