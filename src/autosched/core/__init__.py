"""The scheduler: events in, actions out. Nothing here has a clock, a socket, a thread or a plugin.

Rules
-----
1. `Scheduler.handle(now, event)` is a pure function of the history: same events, same actions. Time is an
   argument, ids are counters, dictionaries keep their order, no set is ever iterated.
2. The core does not know what a stage does. A client tells, for each of its tasks, the four facts of
   load-awareness (thesis 4.1.2): is the stage done, is the job complete, which resources the stage uses,
   which ones the next stage will use. The policy `predictive` also goes by the stages' names and how long they took.
3. Decisions are made in the two phases of the thesis' Listing 2: who has ended a stage joins the queue of its next
   pool, then each free unit takes the first of its queue. The policy says who is first. It is event-driven: the cost
   of a decision grows with the logarithm of the waiting tasks, not with the number of jobs.
4. A lease is all or nothing, and a unit is leased to one step at a time. A step that was told to stop still
   holds its units until its end is known: an expired lease does not mean a quiet device.
5. Every started step ends exactly once: done, failed or lost. A task runs one step at a time, or several that share
   the work of one stage, each on a unit for which no task waits; it goes on when the last of them has ended.
6. Nothing waits without a deadline: a client must connect and must name something to run, a step must end, and a client
   that does not kill its step is killed. So every job ends, even if its clients do nothing but die.

The life of a task's step::

    idle --(load names resources)--> waiting --(units free, head of queue)--> running --(StepEnded)--> idle

Files: events.py (what can happen), actions.py (what can be asked for), state.py (what is known), ranking.py (the queues
in a policy's order), leases.py (which units a step gets), placement.py (which host a client is started on),
idle_units.py (what units do for which no task waits), scheduler.py (the machine), explain.py (why a task waits),
estimates.py (how long stages take), remaining_work.py (what is left to do), policy.py (the old place of the class
`Policy`). Folder: policies/ (who goes next).

The shell's promises (kept by daemon/runtime.py and sim/simulator.py)
----------------------------------------------------------------------
An event and the steps that it started are journalled before any action is performed; `now` is monotonic and read once
per event; a decision's actions are performed in order without waiting in between; every StartStep is answered by one
StepEnded or by the ClientLost of its job, and every StopClient by a ClientLost, even when the client never came.
"""
