"""Tables, charts and pages from finished runs (the only home of pandas and matplotlib)."""
