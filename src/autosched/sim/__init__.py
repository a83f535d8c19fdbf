"""Virtual time: the production scheduler, driven by simulated clients.

scenario.py says what there is to do and what goes wrong; world.py lets it happen: one heap of things to come, one
seed, no clock. Whatever is simultaneous happens in the order in which the jobs were registered. A simulated client
speaks load-awareness as a real one does, and it resumes from its finished rounds as a real one does from its records.
report.py measures the outcome; thesis.py is the load that the thesis measured.

Two things are modelled more simply than they are: steps that share a unit (policy `synchronous`) share it fairly and
at no cost, and messages take no time. Both flatter: reality is a little worse.

Safety is judged here on the world's own account of which step really runs where, not on the scheduler's.
"""
