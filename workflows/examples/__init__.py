"""Notebook-style examples: `python -m workflows.examples.own_task`, or cell by cell in an editor."""
