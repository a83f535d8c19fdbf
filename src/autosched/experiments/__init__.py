"""Experiments: files with lists of values for all parameters of jobs. All combinations are run, with a table of
results.

The thesis did all its measurements this way, with *superb* (section 3.1): all combinations of all lists, run
unattended, one table for notebooks.

Files: definition.py (the file, its errors by line), parameters.py (the parameters), combinations.py (the product of the
lists), models.py (the models that it names), plan.py (the jobs), runner.py (runs them), workspace.py (the folder of an
experiment), rows.py (the result of each job), table.py (all results as columns), comparison.py (the values of one
parameter, pair by pair), page.py and markdown.py (results as pages), reading.py (results in Python), forecast.py
(duration of jobs).
"""
