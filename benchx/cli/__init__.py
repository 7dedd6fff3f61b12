"""The command line: one file per verb; parse, call one function, print, set the exit code."""
