"""Text for people, shared by command line, console and pages: numbers, tables, charts, names of jobs."""
