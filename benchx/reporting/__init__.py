"""Tables, charts and pages from finished runs (the only home of pandas and matplotlib)."""

from benchx.reporting.api import ReportFiles, preload, print_run, report, source_lines
from benchx.reporting.frame import load_frame

__all__ = ["ReportFiles", "load_frame", "preload", "print_run", "report", "source_lines"]
