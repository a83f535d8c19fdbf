"""HTTP interface of the daemon: the page for people, metrics for Prometheus, health for supervisors.

`listener` waits for the first visitor, and only then imports the rest; `connections` accepts browsers; `app` has the
routes; `visitors` says who may look; `board`, `feed`, `jobs`, `metrics` and `health` are what there is to see.
`static/` is the page itself, which needs nothing from elsewhere.
"""
