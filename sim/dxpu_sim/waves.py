"""Traces of a window of a simulation, and a GTKWave save file that opens on what matters."""

import ctypes
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Group", "Module", "Signal", "Trace", "parse", "save_file", "signals",
           "system_groups"]

#: Pixels of GTKWave's window that show waves.
WINDOW_PIXELS = 1200


class Trace:
    """Trace file of a running simulation; for the bench's side, in a build with waves.

    Parameters
    ----------
    path : path
        File to write; its format is the one compiled in.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._program = ctypes.CDLL(None)

    def start(self) -> None:
        """Trace from the current time on. The header alone lists every signal of the design."""
        if not self._program.dxpu_trace_open(str(self.path).encode()):
            raise OSError(f"cannot write the trace {self.path}, or another one is open")

    def stop(self) -> None:
        """Complete the file; does nothing if it is complete."""
        self._program.dxpu_trace_close()


@dataclass(frozen=True)
class Signal:
    """A signal of the generated Verilog."""

    name: str
    width: int
    #: Names of values, for an enum or the state of an FSM.
    values: dict[int, str] = field(default_factory=dict, hash=False)


@dataclass
class Module:
    """What a module of the generated Verilog holds."""

    signals: dict[str, Signal] = field(default_factory=dict)
    #: Module name by instance name.
    instances: dict[str, str] = field(default_factory=dict)


_NAME = r"(?:\\(\S+)\s|([A-Za-z_]\w*))"
_MODULE = re.compile(rf"\s*module {_NAME}")
_ATTRIBUTE = re.compile(r'\s*\(\* enum_value_([01]+) = "(.*)" \*\)')
_SIGNAL = re.compile(rf"\s*(?:(?:input|output|inout|wire|reg|signed)\s+)+(?:\[(\d+):0\]\s+)?{_NAME}"
                     r"\s*(?:=.*)?;")
_INSTANCE = re.compile(rf"\s*{_NAME}\s+(?:#\(|{_NAME}\s*\()")
_INSTANCE_END = re.compile(rf"\s*\)\s+{_NAME}\s*\(")
_KEYWORDS = {"module", "assign", "always", "if", "else", "case", "casez", "begin", "end", "initial",
             "endmodule", "input", "output", "wire", "reg"}


def parse(verilog: str) -> dict[str, Module]:
    """Modules of Verilog as Yosys writes it, by name; nameless intermediate values are left out."""
    modules: dict[str, Module] = {}
    module, values, pending = Module(), {}, None
    for line in verilog.splitlines():
        if match := _MODULE.match(line):
            module = modules.setdefault(_name(match, 1), Module())
            values = {}
        elif match := _ATTRIBUTE.match(line):
            values[int(match[1], 2)] = match[2]
        elif match := _SIGNAL.match(line):
            name = _name(match, 2)
            if not name.startswith("$"):
                # A port has two lines, and its attributes only stand before the first.
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


def signals(modules: dict[str, Module], top: str = "top") -> Iterator[tuple[str, Signal]]:
    """Every signal below ``top`` with its path, in the order of the text, outer modules first."""
    def walk(path, name):
        module = modules.get(name, Module())
        for signal in module.signals.values():
            yield f"{path}.{signal.name}", signal
        for instance, below in module.instances.items():
            yield from walk(f"{path}.{instance}", below)
    return walk(top, top)


@dataclass(frozen=True)
class Group:
    """Signals to show together."""

    title: str
    #: Regular expressions of whole paths without the top's name, in the order to show.
    patterns: tuple[str, ...]
    #: Shown folded.
    closed: bool = False


def save_file(path: str | Path, trace: str | Path, verilog: str, groups: Sequence[Group], *,
              marker_ps: int | None = None, start_ps: int = 0, span_ps: int | None = None) -> int:
    """Write GTKWave save file ``path`` for ``trace``, and the tables of enum names beside it.

    A signal with named values is shown with the names. Returns the number of signals shown.

    Parameters
    ----------
    verilog : str
        Text that was simulated.
    groups
        What to show; a signal appears in the first group that names it.
    marker_ps, start_ps, span_ps : int
        Where to put the marker, where to begin, and how much time to fit into the window.
    """
    from vcd.gtkw import GTKWSave
    path, everything = Path(path).absolute(), list(signals(parse(verilog)))
    tables = path.parent / f"{path.stem}-enums"
    tables.mkdir(exist_ok=True)
    shown = set()
    with open(path, "w") as file:
        save = GTKWSave(file)
        save.comment("Signals of one read through the fabric")
        save.dumpfile(str(Path(trace).absolute()))
        save.savefile(str(path))
        save.timestart(start_ps)
        if span_ps:
            # GTKWave's zoom is the binary logarithm of time units per pixel, negated.
            save.zoom_markers(-math.log2(max(span_ps / WINDOW_PIXELS, 1)),
                              -1 if marker_ps is None else marker_ps)
        save.size(1700, 1000)
        save.signals_width(420)
        save.sst_expanded(True)
        save.treeopen("top")
        for group in groups:
            chosen = [(name, signal) for pattern in group.patterns for name, signal in everything
                      if name not in shown and re.fullmatch(pattern, name.partition(".")[2])]
            chosen = list(dict(chosen).items())
            if not chosen:
                continue
            shown.update(name for name, _ in chosen)
            with save.group(group.title, closed=group.closed):
                for name, signal in chosen:
                    _show(save, name, signal, tables)
    return len(shown)


def _show(save, name, signal, tables):
    bits = f"[{signal.width - 1}:0]" if signal.width > 1 else ""
    alias = ".".join(name.split(".")[1:])
    save.trace(name + bits, alias=alias, datafmt="hex" if signal.width > 1 else "bin",
               translate_filter_file=str(_table(signal, tables)) if signal.values else None)


def _table(signal, tables):
    """File with the names of the values of ``signal``; one for all signals with the same."""
    from vcd.gtkw import make_translation_filter
    text = make_translation_filter(
        sorted(signal.values.items()), datafmt="hex" if signal.width > 1 else "bin",
        size=signal.width) + "\n"
    stem = re.sub(r"\W+", "_", "-".join(signal.values.values()))[:60]
    for n in range(100):
        path = tables / f"{stem}{n or ''}.txt"
        if not path.exists():
            path.write_text(text)
        if path.read_text() == text:
            return path
    raise RuntimeError(f"too many tables like {path}")


def system_groups(boxes: Sequence[int]) -> list[Group]:
    """What to show of a :class:`dxpu_sim.hdl.system.System` with ``boxes``: the way of a read."""
    packet = r"(valid|ready|payload\.(first|last|dwords|data|meta.*))"
    proxies = ["host", *(f"box{n}" for n in range(len(boxes)))]
    groups = [Group("Clock", (r"clk", r"cycle"))]
    for proxy in proxies:
        groups += [
            Group(f"{proxy}: PCIe", (
                rf"{proxy}\.(upstream|slot__?\d+)__(rx|tx_\w+)__{packet}",),
                closed=proxy not in ("host", "box0")),
            Group(f"{proxy}: Ethernet", (
                rf"{proxy}\.gmii__?\d+__[rt]x__\w+",), closed=proxy not in ("host", "box0")),
            Group(f"{proxy}: states", (rf"{proxy}\.(.*\.)?[a-z]\w*state",), closed=True),
        ]
    groups.append(Group("Newest events (cycle)", (r"probe_\w+",), closed=True))
    return groups
