"""Experiments: files with lists of values for all parameters of jobs, whose combinations are run, and their table.

The thesis did all its measurements so, with *superb* (section 3.1): all combinations of all lists, run without anybody
there, one table for notebooks.

Files: definition.py (the file, its errors by line), parameters.py (what can be varied), combinations.py (the product of
the lists), models.py (the models that it names), plan.py (the jobs), runner.py (runs them), workspace.py (the folder of
an experiment), rows.py (what is known of each job), table.py (all of it as columns), comparison.py (the values of one
parameter, pair by pair), page.py and markdown.py (all of it to be read), reading.py (the same from Python), forecast.py
(how long jobs take).
"""
