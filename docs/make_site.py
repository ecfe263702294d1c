"""Builds the site: ``python docs/make_site.py [FOLDER]``, by default ``build/site``.

``FOLDER/source/docs`` gets the pages of this folder and those that ``dxpu docs`` makes, so that
nothing made lies beside what is written; ``FOLDER/html`` gets the site. Each warning is an error.
"""

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from dxpu_cli.commands.docs import pages

ROOT = Path(__file__).resolve().parents[1]
#: Below the pages: where those that are made go.
MADE = "reference/made"
#: At the end of the made index, which lists the pages as links only.
TREE = "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def collect(source: Path) -> Path:
    """Copies the pages to ``source`` and makes the others; the folder that Sphinx is to read.

    Links to files of the tree lead out of ``docs``, so the rest of the tree is beside it: folders
    as links, files as copies, as a page that is included counts from where its file really is.
    """
    shutil.rmtree(source, ignore_errors=True)
    # Times of the files are kept, so Sphinx reads only what has changed.
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.name.startswith(".") or path.name in ("docs", "build"):
            continue
        if path.is_dir():
            (source / path.name).symlink_to(path)
        else:
            shutil.copy2(path, source)
    made = source / "docs" / MADE
    made.mkdir()
    for name, text in pages().items():
        (made / name).write_text(text + (TREE if name == "index.md" else ""))
    return source / "docs"


def build(out: Path) -> int:
    """Builds the site below ``out``; the exit status."""
    source = collect(out / "source")
    return sphinx(["-q", "-W", "--keep-going", "-b", "html", "-d", str(out / "doctrees"),
                   str(source), str(out / "html")])


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/site")
    status = build(out)
    if not status:
        print(f"begin with {out / 'html/index.html'}")
    sys.exit(status)
