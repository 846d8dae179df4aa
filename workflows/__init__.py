"""What a person does: run, sweep, reproduce, resume, report, browse."""
