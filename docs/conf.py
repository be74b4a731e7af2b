"""How Sphinx makes the documentation site: `make docs`."""

import flintmq

project = "FlintMQ"
author = "The FlintMQ developers"
copyright = "The FlintMQ developers, Apache-2.0"
version = release = flintmq.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "notebooks/*.ipynb"]
html_theme = "furo"
html_title = "FlintMQ"

myst_heading_anchors = 4
# Blocks of hex and of consoles are shown as they are.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": False}
