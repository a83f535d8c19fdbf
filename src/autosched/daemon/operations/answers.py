"""Table of the methods of users, with the function that answers each."""

from autosched.daemon.operations import daemon_answers, host_answers, job_answers, unit_answers
from autosched.daemon.operations.user_session import Answers

ANSWERS = Answers({**job_answers.ANSWERS, **unit_answers.ANSWERS, **host_answers.ANSWERS, **daemon_answers.ANSWERS})
