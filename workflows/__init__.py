"""The commands of a person: run, sweep, reproduce, resume, report, browse."""
