"""HTTP interface of the daemon: the page for people, metrics for Prometheus, health checks.

Files: listener.py (listens, and imports the rest on the first request), connections.py (accepts browsers), routes.py,
web_authentication.py, web_services.py (the daemon's parts that handlers read), overview_page.py, job_page.py,
records_page.py, feed.py (changes), metrics.py, health.py.

`static/` is the page itself, which loads nothing from other hosts.
"""
