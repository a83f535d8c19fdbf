"""How `make docs` makes a site of these pages; each of them is plain Markdown and reads as well without."""

project = "autosched"
extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_site"]
html_theme = "alabaster"
html_theme_options = {"description": "tunes many neural networks at once", "page_width": "1240px"}
html_show_copyright = False
suppress_warnings = ["myst.xref_missing"]  # links out of this folder, into the source tree
