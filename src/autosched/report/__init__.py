"""The report of a job: its course and its results, as one JSON file and as one HTML page.

Files: data.py (collects it from the daemon's answers), evaluation_summary.py (conclusions from the numbers), page.py
(the page, in the frame of page.html), svg.py (its drawings). The page is self-contained: no script, no font, no file,
no network.
"""

from autosched.report.data import SCHEMA, Machine, Point, Report, gather, this_machine
from autosched.report.evaluation_summary import EvaluationSummary, verdict
from autosched.report.page import page

__all__ = ["SCHEMA", "EvaluationSummary", "Machine", "Point", "Report", "gather", "page", "this_machine", "verdict"]
