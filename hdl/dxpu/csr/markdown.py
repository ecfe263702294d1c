"""Register descriptions as Markdown."""

from .description import AddressMap, Rows

__all__ = ["markdown"]

_KINDS = {
    "ro": "read only",
    "mem": "read only",
    "mem_hw": "read; a write is a request",
    "rw": "read, write",
    "w1c": "read, write 1 to clear",
    "pulse": "write 1 to act, reads 0",
    "wo": "write only, reads 0",
    "hw": "read; a write is a request",
    "const": "constant",
}


def markdown(what, *, base=0, level=1, title=None):
    """Render a :class:`~dxpu.csr.Block` or :class:`~dxpu.csr.AddressMap` as a Markdown page.

    Parameters
    ----------
    what : Block or AddressMap
    base : int
        Address of the block.
    level : int
        Heading level of the title.
    title : str
        Default: the name.

    Returns
    -------
    str
        Ends with one newline.
    """
    lines = [f"{'#' * level} {title or what.name}", ""]
    if what.doc:
        lines += [what.doc, ""]
    if isinstance(what, AddressMap):
        lines += ["| base | size | block | contents |", "|---|---|---|---|"]
        blocks = sorted(what.blocks.items(), key=lambda item: item[1][0])
        lines += [f"| `{base + at:#06x}` | `{block.size:#x}` | [{name}](#{name}) | "
                  f"{_cell(block.doc)} |" for name, (at, block) in blocks]
        for name, (at, block) in blocks:
            lines += ["", markdown(block, base=base + at, level=level + 1, title=name).rstrip()]
    else:
        lines += ["| address | register | contents |", "|---|---|---|"]
        for e in what.entries:
            if isinstance(e, Rows):
                lines += [f"| `{base + e.address + r.address:#06x} + {e.stride:#x} n` | "
                          f"`{e.name}[n].{r.name}` | {_cell(r.doc)} |" for r in e.registers]
            else:
                lines.append(f"| `{base + e.address:#06x}` | `{e.name}` | {_cell(e.doc)} |")
        for e in what.entries:
            if isinstance(e, Rows):
                lines += ["", f"Rows `{e.name}[n]`: n from 0 to {e.count - 1}. {e.doc}".rstrip()]
                for r in e.registers:
                    lines += _fields(f"{e.name}[n].{r.name}", r, level)
            else:
                lines += _fields(e.name, e, level)
    return "\n".join(lines).rstrip() + "\n"


def _fields(name, register, level):
    lines = ["", f"{'#' * (level + 1)} `{name}`", "",
             "| bits | field | access | reset | meaning |", "|---|---|---|---|---|"]
    for f in sorted(register.fields, key=lambda f: -f.offset):
        top = f.offset + f.width - 1
        bits = f"{top}:{f.offset}" if f.width > 1 else f"{top}"
        kind = f.access.value
        reset = f"`{f.reset:#x}`" if kind in ("rw", "w1c", "const") else "-"
        text = f.doc
        if f.values:
            text += " " + ", ".join(f"{v.value} {v.name}" for v in f.values)
        lines.append(f"| {bits} | `{f.name}` | {_KINDS[kind]} | {reset} | {_cell(text)} |")
    return lines


def _cell(text):
    """Text for one table cell."""
    return " ".join(text.split()).replace("|", "\\|") or "-"
