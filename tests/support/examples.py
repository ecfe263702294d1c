"""The examples of the documents: fenced blocks, and commands in the text."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "blocks", "commands", "inline_commands", "pages"]

ROOT = Path(__file__).parents[2]


@dataclass
class Block:
    """A fenced block of a page.

    Members
    -------
    place : path of the page and line of the fence, as compilers write them
    info : word behind the fence; empty if there is none, and for an indented block
    text : lines between the fences
    note : comment above the block, such as ``executed: tests/x.py``; else empty
    """

    place: str
    info: str
    text: str
    note: str


def pages() -> list[Path]:
    """All handwritten documents."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, text: str | None = None) -> list[Block]:
    """Blocks of a page, including indented blocks: those behind an empty line outside a list."""
    found, fence, note, empty, listed = [], "", "", True, False
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    for number, line in enumerate((page.read_text() if text is None else text).splitlines(), 1):
        opening = re.match(r"\s*(`{3,}|~{3,})\s*(\S*)", line)
        if fence:
            if line.strip() == fence:
                fence = ""
            else:
                found[-1].text += line + "\n"
        elif opening:
            fence = opening[1]
            found.append(Block(f"{name}:{number}", opening[2], "", note))
        elif line.startswith("    ") and empty and not listed:
            found.append(Block(f"{name}:{number}", "", line + "\n", note))
        if line.strip():
            comment = re.fullmatch(r"<!-- (.*) -->", line.strip())
            note = comment[1] if comment else note if fence and opening else ""
            if not line.startswith(" "):
                listed = re.match(r"([-*+]|\d+\.) ", line) is not None
        empty = not line.strip()
    return found


def commands(text: str) -> list[list[str]]:
    """Commands of a block, as words.

    Continued lines are joined. Comments, ``sudo`` and variables set for one command are left out.
    Commands joined by ``&&``, ``;`` or ``|`` are separated.
    """
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();&|")
        lexer.whitespace_split = True
        words = []
        for word in [*lexer, ";"]:
            if word and set(word) <= set("();&|"):
                while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
                    words.pop(0)
                if words:
                    found.append(words)
                words = []
            else:
                words.append(word)
    return found


def inline_commands(page: Path) -> list[tuple[str, str]]:
    """Place and text of each code span in the text that is a whole command of dxpu or make.

    Spans with ``...`` or with a placeholder in capitals are left out.
    """
    text = re.sub(r"^( *)(`{3,}).*?^\1\2$", lambda block: "\n" * block[0].count("\n"),
                  page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [(f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}",
             " ".join(match[1].split()))
            for match in re.finditer(r"`((?:\.venv/bin/)?(?:dxpu|make) [^`]+)`", text)
            if "..." not in match[1] and not re.search(r"\b[A-Z]{3,}\b(?!=)", match[1])]
