"""HTTP interface of the daemon: the page for people, metrics for Prometheus, health for supervisors.

Files: listener.py (waits for the first request, and only then imports the rest), connections.py (accepts browsers),
routes.py, web_authentication.py, web_services.py (the daemon's parts that handlers read), overview_page.py,
job_page.py, records_page.py, feed.py (changes), metrics.py, health.py.

`static/` is the page itself, which needs nothing from elsewhere.
"""
