"""Verdicts on regressions."""
