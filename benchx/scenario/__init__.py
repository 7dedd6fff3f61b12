"""Scenario files: schema, loader with file and line in every error, expansion into points."""
