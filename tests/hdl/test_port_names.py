"""One word has one meaning: a port's name has the same shape in all components of ``hdl/dxpu``.

Sources are read, not run. A shape is compared as it is written, but for how often there is one: a
bit for each row is a bit, and an array of rows is a row. A counted pulse is a bit.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from dxpu_tools.collection import undisturbed

import dxpu

ROOT = Path(dxpu.__path__[0])

#: Names that may have several shapes, and why.
ACCEPTED = {
    "address": "as wide as what is addressed",
    "axis": "an AXI4-Stream with the signals that there are, or those of a path",
    "beats": "beats of packets: a stream, or a port of the memory that has them",
    "command": "what a block is to do; each has its own",
    "data": "as wide as the block",
    "deadline": "in the units of the block",
    "generations": "of 16 bits; credits carry the low 8",
    "gmii": "GMII, or one of its directions",
    "head": "the oldest of a queue: what it is, or where it is",
    "i": "the input of a block that has one",
    "info": "what is known of a packet, in a stream of its own or not",
    "max_payload": "of the port that a TLP comes to, or of all ports",
    "notes": "a port of the memory with a note of each TLP, to write or to read",
    "o": "the output of a block that has one",
    "port": "the interface that a block is about",
    "request": "a stream of requests; the payload says of what",
    "response": "the answers to `request`",
    "result": "the outcome of what the block does",
    "row": "the number of a row: of six bits, or of as many as the block's rows need",
    "rows": "the rows of a mapping table, with what the block needs of them",
    "rx": "what is received",
    "slot": "the interface of each slot",
    "stat_dropped": "one pulse, or one per class",
    "source": "index of the input that a packet came from",
    "state": "the state of a block; each has its own",
    "tx": "what is sent",
    "users": "the parts that share what the block has one of",
    "whole_only": "of a path, or a bit for each path",
    "write_beat": "a beat as the memory of the block stores it",
}
#: Names that have several shapes in packages that are not clean yet. To be shortened only.
OPEN = {
    "about", "acked", "answer", "ask", "at", "beat", "bus", "changed", "clear", "cls",
    "control", "done", "dropped", "due", "due_place", "dwords", "error", "errors", "event",
    "expired", "fence", "free", "header", "judge", "kept", "limits",
    "log", "look", "malformed", "message", "next", "now", "open", "others", "pending", "piece",
    "place", "position", "quiet", "read_address", "read_cell", "receiving", "refused",
    "refused_cls", "requests", "resume", "route", "seen", "session", "shown", "states",
    "status", "stored", "take", "told_mask", "took", "unacked", "verdict", "where",
    "word", "words", "write_address",
}
#: Packages without such names, and the modules beside them.
CLEAN = ("attach", "csr", "mapping", "proxy", "tlp")
#: Words that are no part of a name there: they do not say what a signal is.
VAGUE = {
    "about", "again", "asked", "asks", "astray", "began", "came", "comes", "crowded", "cursor",
    "due", "early", "found", "gate", "greets", "held", "judge", "judged", "look", "looked", "lose",
    "lost", "made", "may", "moved", "owed", "place", "puts", "said", "seen", "shown", "stuck",
    "told", "took", "want", "wants",
}


def port_of(node):
    """The shape of a port that ``In(...)`` or ``Out(...)`` describes, as the module's docstring
    says; ``None`` for anything else."""
    sizes = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
            node.func.attr == "array"):
        sizes.append(ast.unparse(node.args[0]))
        node = node.func.value
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            and node.func.id in ("In", "Out") and node.args):
        return None
    text = " ".join([ast.unparse(node.args[0]), *sizes])
    text = re.sub(r"^Counted\(.*\)$", "1", text, flags=re.DOTALL)
    text = re.sub(r"\b(self\._)?(rows|ports|slots|peers|sessions)\b", "N", text)
    text = re.sub(r" N$", "", re.sub(r"^data\.ArrayLayout\((.*), N\)$", r"\1", text))
    return re.sub(r"\b\w*width\b", "width", "1" if text == "N" else text)


def ports(text):
    """Name, shape and class of each port of the components and signatures in a source."""
    for cls in ast.walk(undisturbed(ast.parse, text)):
        if not isinstance(cls, ast.ClassDef) or not any(
                ast.unparse(base).endswith(("Component", "Signature")) for base in cls.bases):
            continue
        for node in ast.walk(cls):
            members = []
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                members = [(node.target.id, node.annotation)]
            elif isinstance(node, ast.Dict):
                members = [(key.value, value)
                           for key, value in zip(node.keys, node.values, strict=True)
                           if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            for name, value in members:
                shape = port_of(value)
                if shape is not None:
                    yield name, shape, cls.name


def is_clean(path):
    return len(path.relative_to(ROOT).parts) == 1 or path.relative_to(ROOT).parts[0] in CLEAN


def collect(paths):
    """Name to shape to who has it."""
    found = defaultdict(lambda: defaultdict(set))
    for path in paths:
        for name, shape, owner in ports(path.read_text()):
            found[name][shape].add(f"{path.relative_to(ROOT)}: {owner}")
    return found


def with_several(paths):
    """Names with more than one shape, and who has which."""
    return {name: {shape: sorted(owners) for shape, owners in shapes.items()}
            for name, shapes in collect(paths).items() if len(shapes) > 1}


FILES = sorted(ROOT.rglob("*.py"))


def test_a_name_has_one_shape():
    several = with_several(FILES)
    new = {name: several[name] for name in several.keys() - ACCEPTED.keys() - OPEN}
    assert not new, "rename one of each, or say in ACCEPTED why all are right"


def test_no_exception_is_left_over():
    several = with_several(FILES)
    assert not (ACCEPTED.keys() | OPEN) - several.keys()
    assert not ACCEPTED.keys() & OPEN


def test_a_clean_package_has_no_open_names():
    several = with_several([path for path in FILES if is_clean(path)])
    assert not several.keys() - ACCEPTED.keys()


def test_names_say_what_a_signal_is():
    vague = {(name, owner) for name, shapes in collect(filter(is_clean, FILES)).items()
             for owners in shapes.values() for owner in owners if VAGUE & set(name.split("_"))}
    assert not vague


@pytest.mark.parametrize("text, found", [
    ("class A(wiring.Component):\n    x: In(8)", {("x", "8", "A")}),
    ("class A(wiring.Component):\n    x: Out(P(w)).array(rows)", {("x", "P(w)", "A")}),
    ("class A(wiring.Signature):\n  def __init__(self):\n    super().__init__({'x': In(ports)})",
     {("x", "1", "A")}),
    ("class A(wiring.Component):\n    x: In(data.ArrayLayout(P, rows))", {("x", "P", "A")}),
    ("class A(wiring.Component):\n    x: In(P(w)).array(4)", {("x", "P(w) 4", "A")}),
    ("class A:\n    x: In(8)", set()),
    ("class A(wiring.Component):\n    x: int\n    y = {'z': 3}", set()),
])
def test_it_reads_every_kind_of_port(text, found):
    assert set(ports(text)) == found
