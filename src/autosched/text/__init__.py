"""What people read and type, said once for command line, console and pages: numbers, tables, charts, names of jobs."""
