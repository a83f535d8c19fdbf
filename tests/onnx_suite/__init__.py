"""ONNX's own backend suite, run through the import and the compilation of a job without trials: `make onnx-suite`.

Modules: `cases` (the cases of the installed onnx package), `case_run` (one case in a child process), `table` (the
committed results, and what became worse), `page` (the page of operators), `__main__` (the command).
"""
