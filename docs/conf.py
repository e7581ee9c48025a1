"""Sphinx configuration: the guides, the notebooks with their committed outputs, the API reference and the
results.
"""

import re
import shutil
from importlib.metadata import version as version_of
from pathlib import Path

ROOT = Path(__file__).parents[1]

project = "specsim"
author = "The specsim developers"
copyright = author
version = release = version_of("specsim-decoding")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
source_suffix = {
    ".rst": "restructuredtext",
    ".md": "myst-nb",
    ".ipynb": "myst-nb",
}  # generated pages are .rst
default_role = "code"
# an ellipsis in a code block is no Python
suppress_warnings = ["misc.highlighting_failure"]

# the tests execute the notebooks; the site shows the outputs that are committed
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature has them
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "specsim"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "glossary": []}
html_show_sourcelink = False


def copy_notebooks() -> None:
    """Copy the notebooks below this folder, where Sphinx finds them."""
    folder = Path(__file__).parent / "notebooks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in sorted((ROOT / "notebooks").glob("[0-9]_*.ipynb")):
        shutil.copy(path, folder)


def link_notebooks(app: object, document: str, source: list[str]) -> None:
    """Turn links to notebooks of the repository into links to their pages."""
    source[0] = re.sub(r"\]\((\.\./)+notebooks/(\w+)\.(ipynb|py)\)", r"](/notebooks/\2.ipynb)", source[0])


def setup(app: object) -> None:
    copy_notebooks()
    app.connect("source-read", link_notebooks)  # type: ignore[attr-defined]
