"""The report of a job: what happened and what came of it, as one JSON file and as one HTML page.

Files: data.py (gathers it from what the daemon says), evaluation_summary.py (what the numbers mean), page.py (the page,
in the frame of page.html), svg.py (its drawings). The page needs nothing but itself: no script, no font, no file, no
network.
"""

from autosched.report.data import SCHEMA, Machine, Point, Report, gather, this_machine
from autosched.report.evaluation_summary import EvaluationSummary, verdict
from autosched.report.page import page

__all__ = ["SCHEMA", "EvaluationSummary", "Machine", "Point", "Report", "gather", "page", "this_machine", "verdict"]
