"""Bit drawings and tables of ``docs/reference/wire-format.md``.

They are made from :mod:`dxpu.fabric.wire.format` and :mod:`dxpu.fabric.wire.frame_types`.

``python -m dxpu_cli.pages.wire_format`` updates the page; a test checks the page.
"""

import ast
import inspect
from pathlib import Path

from dxpu.fabric.wire import format as fmt
from dxpu.fabric.wire.frame_types import Body, FrameType
from dxpu_model.wire_vectors import VECTORS
from dxpu_tools.collection import undisturbed

__all__ = ["PAGE", "generated", "updated"]

#: The page, in a source tree.
PAGE = Path(__file__).parents[3] / "docs/reference/wire-format.md"

_SHORT = {"CRX": "C", "AR": "A", "zero": "0", "destination slot": "dst slot"}
_OPEN = (fmt.CreditClass, fmt.EventCode, fmt.ErrorCode,
         fmt.FenceReason, fmt.Role, fmt.ArqMode, fmt.SecurityMode, fmt.Capability, fmt.DropCause)


def _drawing(fields, first: int = 0) -> str:
    """Rows of four bytes, most significant bit of the first byte on the left."""
    bits: dict[int, str] = {}
    for field in fields:
        width = 8 * field.size
        for bit in range(field.lsb, field.msb + 1):
            bits[8 * (first + field.offset) + width - 1 - bit] = field.name
    left = min(bits) // 32 * 32
    line = " " * 6 + "+" + "-+" * 32
    rows = [" " * 6 + "".join(f" {n % 10}" for n in range(32)), line]
    named = set()
    for row in range(left, max(bits) + 1, 32):
        text, bit = f"{row // 8:4}  |", row
        while bit < row + 32:
            name = bits.get(bit, "")
            end = bit
            while end < row + 32 and bits.get(end, "") == name:
                end += 1
            room = 2 * (end - bit) - 1
            label = _SHORT.get(name, name) if name not in named else "..."
            named.add(name)
            text += label[:room].center(room) + "|"
            bit = end
        rows += [text, line]
    return "```text\n" + "\n".join(rows) + "\n```"


def _documents() -> dict[tuple[str, str], str]:
    """Strings below the members of the enumerations, and below their class lines."""
    found = {}
    for node in undisturbed(ast.parse, inspect.getsource(fmt)).body:
        if isinstance(node, ast.ClassDef):
            found[node.name, ""] = ast.get_docstring(node) or ""
            for member, after in zip(node.body, node.body[1:], strict=False):
                if (isinstance(member, ast.Assign) and isinstance(after, ast.Expr)
                        and isinstance(after.value, ast.Constant)):
                    found[node.name, member.targets[0].id] = " ".join(after.value.value.split())
    return found


def _plain(text: str) -> str:
    """A docstring without reStructuredText marks."""
    words = []
    for word in " ".join(text.split()).split(" "):
        if word.startswith(":"):
            word = "`" + word.split("`")[1].split(".")[-1].lstrip("~") + "`" + word.split("`")[2]
        words.append(word.replace("``", "`"))
    return " ".join(words)


def _enumeration(kind, documents) -> str:
    rows = [f"### {kind.__name__}", "", _plain(documents[kind.__name__, ""]), "",
            "| value | name | meaning |", "|---|---|---|"]
    rows += [f"| {int(member)} | {member.name} | "
             f"{_plain(documents.get((kind.__name__, member.name), ''))} |" for member in kind]
    return "\n".join(rows)


def _types() -> str:
    """A row for each frame type, by number."""
    rows = ["### FrameType", "", _plain(FrameType.__doc__), "",
            "| value | name | meaning | SEQ and ACK | acted upon by |", "|---|---|---|---|---|"]
    rows += [f"| {int(kind)} | {kind.name} | {kind.text} | {kind.numbering.value} | "
             f"{kind.handler.value} |" for kind in sorted(FrameType)]
    return "\n".join(rows)


def _bodies() -> str:
    """A row for each body, with the types that have it."""
    rows = ["| type | fields (bytes) | end | |", "|---|---|---|---|"]
    for body in Body:
        types = ", ".join(kind.name for kind in sorted(FrameType) if kind.body is body)
        fields = ", ".join(f"{name} ({size})" for name, size in body.fields)
        if body in (Body.HELLO, Body.KEYED):
            fields = f"{body.size} bytes"
        crc = ", then CRC-32C" if body.sealed else ""
        rows.append(f"| {types} | {fields or '-'} | {body.end.value}{crc} | {body.text} |")
    return "\n".join(rows)


def _hello() -> str:
    rows, offset = ["| bytes | field |", "|---|---|"], 0
    for name, size in Body.HELLO.fields:
        where = f"{offset}-{offset + size - 1}" if size > 1 else f"{offset}"
        rows.append(f"| {where} | {name} |")
        offset += size
    rows.append(f"| {offset}-{offset + 3} | CRC-32C over the bytes before |")
    return "\n".join(rows)


def efficiency(payload: int, limit: int) -> float:
    """Payload per byte on the wire of back to back writes with 4-dword headers.

    ``limit`` is the packing limit in bytes of Ethernet payload; 0 for one TLP per frame. Preamble
    and start delimiter are 8 bytes, FCS 4, gap 12.
    """
    record = 16 + payload + 4
    padded = -(-record // 8) * 8
    count = max(1, min(fmt.COUNT_MAX, (limit - (fmt.HEADER_BYTES - fmt.ETHERNET_BYTES)) // padded))
    frame = fmt.HEADER_BYTES + (record if count == 1 else count * padded)
    return count * payload / (max(frame, 60) + 8 + 4 + 12)


def _efficiency() -> str:
    limits = (0, 512, 1500)
    rows = ["| payload | one TLP a frame | packed, 512 | packed, 1500 |", "|---|---|---|---|"]
    rows += [f"| {size} B | " + " | ".join(f"{efficiency(size, limit):.1%}" for limit in limits)
             + " |" for size in (64, 128, 256, 512)]
    return "\n".join(rows)


def generated() -> dict[str, str]:
    """Each generated part of the page by its name."""
    documents = _documents()
    return {
        "header": _drawing(fmt.HEADER_FIELDS),
        "credit": _drawing(fmt.CREDIT_FIELDS, fmt.HEADER_BYTES),
        "bodies": _bodies(),
        "hello": _hello(),
        "efficiency": _efficiency(),
        "values": "\n\n".join(
            [_types(), *(_enumeration(kind, documents) for kind in _OPEN)]),
        "vectors": "\n".join(f"- {name}:\n  `{text}`" for name, (_, text) in VECTORS.items()),
    }


def updated(page: str) -> str:
    """``page`` with new text in every generated part."""
    for name, text in generated().items():
        start, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        head, _, rest = page.partition(start)
        if not rest:
            raise ValueError(f"The page has no part {name!r}")
        page = head + start + "\n" + text + "\n\n" + rest[rest.index(end):]
    return page


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
