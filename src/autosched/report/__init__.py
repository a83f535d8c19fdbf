"""The report of a job: what happened and what came of it, as one JSON file and as one HTML page.

data.py gathers it from what the daemon says; page.py writes the page, with drawings from svg.py and the frame from
page.html. The page needs nothing but itself: no script, no font, no file, no network.
"""

from autosched.report.data import SCHEMA, Machine, Point, Report, gather, this_machine
from autosched.report.page import page
from autosched.report.verdict import Verdict, verdict

__all__ = ["SCHEMA", "Machine", "Point", "Report", "Verdict", "gather", "page", "this_machine", "verdict"]
