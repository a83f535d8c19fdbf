"""Models that rank schedules before anything is measured, learned from the records of many networks.

Lorien (Yu et al., SoCC 2021, section 3.4) calls this zero-shot tuning.

Files: `measured_task` (the data), `ndcg` (quality of an order), `learners` (models and baselines), `ranker` (a fitted
model with its validity classifier, and its stored form), `ranker_choice` (chooses the settings by networks that are
left out).
"""
