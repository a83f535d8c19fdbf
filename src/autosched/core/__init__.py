"""The scheduler: events in, actions out. Nothing here has a clock, a socket, a thread or a plugin.

Rules
-----
1. `Scheduler.handle(now, event)` is a pure function of the history: same events, same actions. Time is an
   argument, ids are counters, dictionaries keep their order, no set is ever iterated.
2. The core does not know what a stage does. For each task, the client reports the four facts of
   load-awareness (thesis 4.1.2): whether the stage is done, whether the job is complete, which resources the
   stage uses, and which ones the next stage will use. Policies also use the stages' durations, their roles and their
   places in a job (stages.py).
3. Decisions are made in the two phases of the thesis' Listing 2: a task whose stage has ended joins the queue of its
   next pool, then each free unit takes the first task of its queue. The policy orders the queues. The cost of a
   decision grows with the logarithm of the waiting tasks, not with the number of jobs.
4. A lease is all or nothing, and a unit is leased to one step at a time. A step that was told to stop still
   holds its units until its end is known: an expired lease does not mean a quiet device.
5. Every started step ends exactly once: done, failed or lost. A task runs one step at a time, or several that share
   the work of one stage, each on a unit for which no task waits; its next stage starts when the last of them has ended.
6. Nothing waits without a deadline: a client must connect and must name work, a step must end, and a client that
   does not kill an overdue step is killed. Every job therefore ends, even if all its clients crash.

Files: events.py (inputs of the scheduler), actions.py (its outputs), lifecycles.py (the states of a client and of a
task, and the transitions between them), state.py (the scheduler's state), ranking.py (queues in the policy's order),
leases.py (units of a step), placement.py (host of a client), idle_units.py (work for units for which no task waits),
scheduler.py (the state machine), explain.py (why a task waits), estimates.py (durations of stages), remaining_work.py
(work that is left). Folder: policies/ (scheduling order).

The shell's promises (kept by daemon/runtime.py and sim/simulator.py)
----------------------------------------------------------------------
An event and the steps that it started are journalled before any action is performed; `now` is monotonic and read once
per event; a decision's actions are performed in order without waiting in between; every StartStep is answered by one
StepEnded or by the ClientLost of its job, and every StopClient by a ClientLost, even when the client never connected.
"""
