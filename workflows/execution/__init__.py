"""Runs the runs of a study, in this process or on Ray."""
