"""The console: lines of words over a socket, for people with nc, telnet or a shell, and for scripts.

A thin layer of text: each command becomes a method of the wire, answered by the same session with the same roles and
the same audit. Files: server.py (reads lines and writes answers), command.py (what a command is),
commands.py (the commands), method_commands.py (commands made of methods), line_parser.py (takes a line apart).
"""
