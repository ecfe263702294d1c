"""The site that ``make docs`` builds from these pages with Sphinx."""

project = "DXPU"
author = "The DXPU authors"
copyright = "the DXPU authors, Apache-2.0"
language = "en"

extensions = ["myst_parser"]
highlight_language = "text"

#: Headings down to this level are targets of links: `page.md#heading`.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "DXPU"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
