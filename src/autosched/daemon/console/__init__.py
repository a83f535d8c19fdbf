"""The console: lines of words over a socket, for people with nc, telnet or a shell, and for scripts.

A thin layer of text: each command becomes a method of the wire, answered by the same session with the same roles and
the same audit. `server` reads lines and writes answers, `commands` says what there is, `words` takes a line apart.
"""
