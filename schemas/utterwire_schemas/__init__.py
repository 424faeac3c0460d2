"""Utterwire."""
