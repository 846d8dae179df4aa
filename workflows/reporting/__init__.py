"""Figures and tables from records."""
