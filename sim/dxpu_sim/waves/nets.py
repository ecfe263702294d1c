"""Signals of generated Verilog, with the names of their values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Module", "Net", "Signal", "nets", "parse"]


@dataclass(frozen=True)
class Signal:
    """A signal of a module."""

    name: str
    width: int
    #: Names of values, for an enum or the state of an FSM.
    values: dict[int, str] = field(default_factory=dict, hash=False)


@dataclass
class Module:
    """Signals and instances of a module in generated Verilog."""

    signals: dict[str, Signal] = field(default_factory=dict)
    #: Module name by instance name.
    instances: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Net:
    """A signal at its place in the hierarchy."""

    #: Instances from the top module on.
    scopes: tuple[str, ...]
    signal: Signal

    @property
    def path(self) -> str:
        """Path below the top module, with the instance names of the source.

        The number that Amaranth appends to an instance with the name of a signal is removed.
        """
        return ".".join((*(re.sub(r"\$\d+$", "", scope) for scope in self.scopes[1:]),
                         self.signal.name))


_NAME = r"(?:\\(\S+)\s|([A-Za-z_]\w*))"
_MODULE = re.compile(rf"\s*module {_NAME}")
_ATTRIBUTE = re.compile(r'\s*\(\* enum_value_([01]+) = "(.*)" \*\)')
_SIGNAL = re.compile(rf"\s*(?:(?:input|output|inout|wire|reg|signed)\s+)+(?:\[(\d+):0\]\s+)?{_NAME}"
                     r"\s*(?:=.*)?;")
_INSTANCE = re.compile(rf"\s*{_NAME}\s+(?:#\(|{_NAME}\s*\()")
#: Functions; their arguments are no signals.
_FUNCTION = re.compile(r"^  function .*?^  endfunction$", re.MULTILINE | re.DOTALL)
_INSTANCE_END = re.compile(rf"\s*\)\s+{_NAME}\s*\(")
_KEYWORDS = {"module", "assign", "always", "if", "else", "case", "casez", "begin", "end", "initial",
             "endmodule", "input", "output", "wire", "reg"}


def parse(verilog: str) -> dict[str, Module]:
    """Modules of Verilog as Yosys writes it, by name, without nameless intermediate values."""
    modules: dict[str, Module] = {}
    module, values, pending = Module(), {}, None
    for line in _FUNCTION.sub("", verilog).splitlines():
        if match := _MODULE.match(line):
            module = modules.setdefault(_name(match, 1), Module())
            values = {}
        elif match := _ATTRIBUTE.match(line):
            values[int(match[1], 2)] = match[2]
        elif match := _SIGNAL.match(line):
            name = _name(match, 2)
            if not name.startswith("$"):
                # A port has two lines, with attributes only before the first.
                known = module.signals.get(name)
                module.signals[name] = Signal(name, int(match[1] or 0) + 1,
                                              values or (known.values if known else {}))
            values = {}
        elif pending and (match := _INSTANCE_END.match(line)):
            module.instances[_name(match, 1)] = pending
            pending = None
        elif (match := _INSTANCE.match(line)) and _name(match, 1) not in _KEYWORDS:
            if match[3] or match[4]:
                module.instances[_name(match, 3)] = _name(match, 1)
            else:
                pending = _name(match, 1)
    return modules


def _name(match, group):
    return match[group] or match[group + 1]


def nets(modules: dict[str, Module], top: str = "top") -> Iterator[Net]:
    """Every signal of ``top`` and below, in the order of the text, outer modules first."""
    def walk(scopes, name):
        module = modules.get(name, Module())
        for signal in module.signals.values():
            yield Net(scopes, signal)
        for instance, below in module.instances.items():
            yield from walk((*scopes, instance), below)
    return walk((top,), top)
