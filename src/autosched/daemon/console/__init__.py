"""The console: lines of text over a socket, for people with nc, telnet or a shell, and for scripts.

It is a thin layer: each command becomes a method of the protocol, answered by the same session with the same roles and
the same audit. Files: server.py (reads lines and writes answers), command.py (types of commands), commands.py (the
commands), method_commands.py (derives commands from methods), line_parser.py (parses lines).
"""
