"""Parts of a design that are at rest cost no time in a simulation.

In most cycles most of a large design does nothing, but Verilator computes all of it at each edge of
a clock. :func:`leave_out` rewrites the Verilog of a design so that a *part*, an instance with all
that is below it, is computed only when something in it is about to change:

- The clock of a part stays low in a cycle in which each of its registers would get the value that
  it has. The part has an output that says so, from the next values of the registers.
- A part reads copies of its inputs, which follow at once, in the same time step. Otherwise
  Verilator would compute what depends on an input whenever it computes what the input depends on,
  changed or not.

So all registers and outputs have the same values in each cycle as without the rewriting
(``tests/sim/run/test_rest.py``). A part that is seldom at rest costs more than before, as it is
asked in each cycle: :data:`RESTLESS` names instances that are not worth asking.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["RESTLESS", "leave_out"]

#: Names of instances in which something changes in most cycles: what scans, counts time, or is
#: above such an instance. A wrong name costs time and nothing else.
RESTLESS = re.compile(
    r"box\d|core|counters|detach|engine|errors|ethernet\d|grants|host\d?|link|malformed|messages|"
    r"replies|retry|routes|scheduler|session|switch|tracker|tracking|tx|\w+_port")
#: Characters of Verilog that compute, in the smallest part. More parts are more clocks, each of
#: which costs at each edge.
SMALLEST = 15000

#: Verilator keeps a net as a variable, and does not compute its value where it is read.
_KEPT = "/* verilator public_flat_rd */"
_NAME = r"(?:\\\S+ |(?<![\w$'])[A-Za-z_][\w$]*)"
_MODULE = re.compile(rf"^module ({_NAME}) ?\((.*?)\);\n(.*?)^endmodule\n", re.DOTALL | re.MULTILINE)
_PORT = re.compile(rf"^  (input|output) (?:signed )?(\[\d+:0\] )?({_NAME}) ?;\n", re.MULTILINE)
_ASSIGN = re.compile(r"^  assign (.*?) = (.*?);\n", re.DOTALL | re.MULTILINE)
_ALWAYS = re.compile(r"^  always (.*?)\n((?:    .*\n)+(?:  end\n)?)", re.MULTILINE)
_INSTANCE = re.compile(rf"^  ({_NAME}) ?(#\(.*?\) )? ?({_NAME}) ?\(\n(.*?)\n  \);\n",
                       re.DOTALL | re.MULTILINE)
_CONNECTION = re.compile(rf"^    \.({_NAME}) ?\((.*?)\),?$", re.DOTALL | re.MULTILINE)
_CLOCKED = re.compile(rf"@\(posedge ({_NAME}) ?\)(?: begin)?")
_CONDITION = re.compile(r"if \((.*)\)( begin)?")
_STEP = re.compile(r"(.*?) <= (.*);")
_LITERAL = re.compile(r"\d+'s?[bodh][0-9a-fxz_]+")
_WORD = re.compile(_NAME)


def _names(text):
    """Names in an expression, without the blank at the end of an escaped one."""
    return {name.strip() for name in _WORD.findall(_LITERAL.sub("0", text + " "))}


def _written(name):
    """A name as Verilog has it."""
    return name + " " if name.startswith("\\") else name


def _changes(body):
    """Expressions, one of which at least is true if a clocked block changes something.

    ``None`` for a block of another form than :func:`dxpu_tools.conversion.to_verilog` gives.
    """
    found, conditions, once = [], [], []
    for line in (line.strip() for line in body.splitlines()):
        if match := _CONDITION.fullmatch(line):
            (conditions if match[2] else once).append(match[1])
        elif match := _STEP.fullmatch(line):
            found.append(" && ".join([*(f"({condition})" for condition in conditions + once),
                                      f"({match[1]} != {match[2]})"]))
            once = []
        elif line != "end":
            return None
        elif conditions:
            conditions.pop()
    return found


@dataclass(frozen=True)
class _Block:
    """A clocked block; without a clock if its form is not known."""

    text: str
    clock: str
    changes: list[str]

    @classmethod
    def of(cls, match):
        clocked, changes = _CLOCKED.fullmatch(match[1]), _changes(match[2])
        if clocked is None or changes is None:
            return cls(match[0], "", [])
        return cls(match[0], clocked[1].strip(), changes)


@dataclass(frozen=True)
class _Instance:
    text: str
    module: str
    name: str
    parameters: str
    connections: dict[str, str]


@dataclass
class _Module:
    """A module of the text, in pieces."""

    name: str
    body: str
    ports: dict[str, tuple[str, str]]
    blocks: list[_Block]
    instances: list[_Instance] = field(default_factory=list)

    @classmethod
    def of(cls, match):
        body = match[3]
        return cls(
            match[1].strip(), body,
            {port[3].strip(): (port[1], port[2] or "") for port in _PORT.finditer(body)},
            [_Block.of(block) for block in _ALWAYS.finditer(body)],
            [_Instance(found[0], found[1].strip(), found[3].strip(), found[2] or "",
                       {port.strip(): value for port, value in _CONNECTION.findall(found[4])})
             for found in _INSTANCE.finditer(body)])

    @cached_property
    def cost(self):
        """Characters of what computes, without what is below."""
        return (sum(len(value) + 20 for _, value in _ASSIGN.findall(self.body))
                + sum(len(block.text) for block in self.blocks))


class _Design:
    """All modules of a text, and which instances are parts."""

    def __init__(self, text):
        self.modules = {module.name: module for module in map(_Module.of, _MODULE.finditer(text))}
        self._clocks = {}
        self._calm = {}
        #: Modules whose instances are parts, and those below them.
        self.parts = set()
        self.gated = set()
        self._choose(self.modules["top"])

    def children(self, module):
        """Modules of the instances in a module, as far as the text has them."""
        return [self.modules[instance.module] for instance in module.instances
                if instance.module in self.modules]

    def clocks(self, module):
        """Ports of a module that clock something in it or below."""
        if module.name not in self._clocks:
            used = {block.clock for block in module.blocks}
            for instance in module.instances:
                if child := self.modules.get(instance.module):
                    used |= {instance.connections[port].strip() for port in self.clocks(child)}
            self._clocks[module.name] = [port for port in module.ports if port in used]
        return self._clocks[module.name]

    def _cost(self, module):
        return module.cost + sum(map(self._cost, self.children(module)))

    def _is_calm(self, module, name):
        """Whether an instance can be a part, or below one: all in it is known, and can rest."""
        if module.name not in self._calm:
            clocks = self.clocks(module)
            self._calm[module.name] = (
                RESTLESS.fullmatch(name) is None
                and all(block.clock in clocks for block in module.blocks)
                and not any(clock in _names(value) for clock in clocks
                            for _, value in _ASSIGN.findall(module.body))
                and all(instance.module in self.modules
                        and self._is_calm(self.modules[instance.module], instance.name)
                        for instance in module.instances))
        return self._calm[module.name]

    def _choose(self, module):
        for instance in module.instances:
            child = self.modules.get(instance.module)
            if child is None:
                continue
            if (self._is_calm(child, instance.name) and self.clocks(child)
                    and self._cost(child) >= SMALLEST):
                self.parts.add(child.name)
                self._gate(child)
            else:
                self._choose(child)

    def _gate(self, module):
        self.gated.add(module.name)
        for child in self.children(module):
            self._gate(child)


def _changing(clock):
    """Output of a module in a part: a register of ``clock`` is about to change."""
    return _written("\\_changing$" + clock.lstrip("\\"))


class _Rewriting:
    """The new text of one module."""

    def __init__(self, design, module):
        self._design = design
        self._module = module
        self._declarations = []
        self._statements = []
        #: By clock: what says that a register is about to change.
        self._changes = defaultdict(list)

    def text(self):
        module, design = self._module, self._design
        ports = [_written(port) for port in module.ports]
        body = module.body
        for number, instance in enumerate(module.instances):
            if instance.module in design.gated:
                body = body.replace(instance.text, self._instance(instance, number), 1)
        if module.name in design.gated:
            for block in module.blocks:
                self._changes[block.clock] += block.changes
            for clock in design.clocks(module):
                output = _changing(clock)
                terms = " | ".join(f"({term})" for term in self._changes[clock]) or "1'h0"
                ports.append(output)
                self._declarations.append(f"  output {output}{_KEPT};")
                self._statements.append(f"  assign {output} = {terms};")
        end = "\n".join([*self._statements, "endmodule", ""])
        return "\n".join([f"module {_written(module.name)}({', '.join(ports)});",
                          *self._declarations, body + end])

    def _instance(self, instance, number):
        child = self._design.modules[instance.module]
        wired = dict(instance.connections)
        if child.name in self._design.parts:
            self._copy_inputs(wired, child, f"_copy{number}")
        for port in self._design.clocks(child):
            changing = f"_changing{number}_{len(self._declarations)}"
            self._declarations.append(f"  wire {changing};")
            clock = wired[port]
            wired[_changing(port).strip()] = changing
            if child.name in self._design.parts:
                wired[port] = self._gate(clock, changing)
            else:
                self._changes[clock.strip()].append(changing)
        connections = ",\n".join(f"    .{_written(port)}({value})"
                                 for port, value in wired.items())
        return (f"  {_written(instance.module)} {instance.parameters}{_written(instance.name)} (\n"
                f"{connections}\n  );\n")

    def _gate(self, clock, changing):
        """Clock of a part: high with ``clock`` if ``changing`` was true before."""
        gated = changing.replace("changing", "clock")
        self._declarations += [f"  wire {gated};", f"  reg {gated}_on = 0;"]
        self._statements += [f"  always_latch if (!{clock}) {gated}_on = {changing};",
                             f"  assign {gated} = {clock} & {gated}_on;"]
        return gated

    def _copy_inputs(self, wired, child, prefix):
        """Let a part read copies of its inputs.

        Each change of ``stir``, up or down, lets the copies follow. Should an input change again
        meanwhile, ``stir`` changes again.
        """
        differ, follow = [], []
        clocks = self._design.clocks(child)
        for port, value in wired.items():
            way, width = child.ports[port]
            if way == "input" and port not in clocks and _names(value):
                copy = f"{prefix}_{len(differ)}"
                self._declarations.append(f"  reg {width}{copy} = 0;")
                differ.append(f"({copy} != {value})")
                follow.append(f"    {copy} <= {value};")
                wired[port] = copy
        if differ:
            stir, seen = f"{prefix}_stir", f"{prefix}_seen"
            self._declarations += [f"  reg {seen} = 0;", f"  wire {stir} {_KEPT};"]
            self._statements += [f"  assign {stir} = {seen} ^ ({' | '.join(differ)});",
                                 f"  always @(posedge {stir} or negedge {stir}) begin", *follow,
                                 f"    {seen} <= {stir};", "  end"]


def leave_out(text: str) -> str:
    """SystemVerilog of a design in which parts at rest are not computed.

    Parameters
    ----------
    text : str
        Verilog as :func:`dxpu_tools.conversion.to_verilog` gives it, top module ``top``, each other
        module instantiated once.
    """
    design = _Design(text)
    return _MODULE.sub(lambda match: _Rewriting(
        design, design.modules[match[1].strip()]).text(), text)
