"""``dxpu bench``: measures the figures of the documents."""

import json

from dxpu_cli.main import require
from dxpu_cli.options import add_seed, file_to_write, given_seed, whole_number
from dxpu_cli.progress import Progress
from dxpu_performance.measured import RATES
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

from . import allocation, paper, pool, scale, simulated, synthesised

__all__ = ["add_arguments", "run"]

#: Each measurement, and its help line.
MEASUREMENTS = {
    "traversal": "cycles of the four traversals of a read through the proxies, idle and under load",
    "wire": "payload per byte on a saturated 1 Gbit/s line, against the contract's table",
    "paper": "tables of the paper on the gateware: latency, bandwidth, Eq. 1, scaling, GPU to GPU, "
             "load, loss; `--out` writes the file that the performance model reads; minutes",
    "size": "LUTs, registers and block RAMs of each proxy: packed for ECP5, not placed",
    "clock": "size and frequency of the engine, the switch and each proxy: placed and routed for "
             "ECP5 by the recipe of `dxpu build`, with three seeds; hours",
    "scale": "size, latency and clock against rows, sessions and width; hours, but what was "
             "measured once is kept",
    "allocation": "time of a manager's decisions: a place for a wish, and a turn of a queue of 100 "
                  "wishes, in pools of 512 and 4,096 GPUs",
    "pool": "a manager of many light nodes, in real time: discovery, attach and detach of a GPU, "
            "CPU and memory, and their slope; minutes",
    "takeover": "seconds until another manager leads after the leader was killed, stopped, or "
                "ended, and until a wish is fulfilled again; starts etcds on this machine",
}


def add_arguments(parser):
    """Options of the command."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, text in MEASUREMENTS.items():
        sub = what.add_parser(name, help=text)
        if name == "scale":
            sub.add_argument("--against", default=",".join(scale.PARAMETERS), metavar="PARAMETERS",
                             help="what is varied, a list with commas (default: %(default)s)")
        elif name == "pool":
            sub.add_argument("--nodes", default=",".join(map(str, pool.SIZES)), metavar="NUMBERS",
                             help="sizes of the pool, half hosts and half boxes of eight GPUs: a "
                                  "list with commas (default: %(default)s)")
            sub.add_argument("--cycles", default="100", metavar="NUMBER",
                             help="attaches and detaches in each pool (default: %(default)s)")
        elif name == "paper":
            sub.add_argument("--rate", default=",".join(RATES), metavar="RATES",
                             help="rates of the line, a list with commas (default: %(default)s)")
        elif name == "takeover":
            sub.add_argument("--rounds", default="5", metavar="N",
                             help="how often each is measured (default: %(default)s)")
        elif name != "allocation":
            sub.add_argument("--width", default="64,512" if name == "traversal" else "64",
                             metavar="BITS", help="data bits per beat, or a list with commas")
        if name in simulated.SIMULATED or name in ("allocation", "pool"):
            add_seed(sub)
        if name in simulated.SIMULATED:
            sub.add_argument("--pcap", action="store_true", help="capture every frame and TLP, in "
                             f"build/bench/{name}/BITS.pcapng")
        if name == "size":
            sub.add_argument("--keys", action="store_true",
                             help="of proxies with keys (`dxpu generate --keys`)")
            sub.add_argument("--managed", action="store_true",
                             help="of proxies with keys and management (`dxpu generate --managed`)")
            sub.add_argument("--observed", action="store_true", help="of proxies that measure what "
                             "happens (`dxpu generate --observed`)")
        if name in _PARTS:
            sub.add_argument("--part", default=",".join(_PARTS[name]), metavar="PARTS",
                             help="what to measure, a list with commas (default: %(default)s)")
        sub.add_argument("--out", default=None, metavar="FILE", help="write the figures as JSON")


#: Measurements that may be made in part.
_PARTS = {"clock": tuple(synthesised.CLOCKED), "scale": scale.PARTS,
          "paper": paper.PARTS}


def run(arguments) -> int:
    """Measure and print; returns 0 only if all measurements were made."""
    from dxpu.stream import WIDTHS
    what = arguments.what
    widths = (_listed("--width", arguments.width, WIDTHS, int) if hasattr(arguments, "width")
              else [])
    parts = _listed("--part", arguments.part, _PARTS[what]) if what in _PARTS else []
    against = _listed("--against", arguments.against, scale.PARAMETERS) if what == "scale" else []
    rounds = whole_number("--rounds", arguments.rounds, 1, 1000) if what == "takeover" else 0
    out = file_to_write("--out", arguments.out)
    require(*_needs(what, parts))

    def save(result):
        if out is not None:
            write_text(out, json.dumps(result, indent=2) + "\n")

    if what == "pool":
        sizes = _listed("--nodes", arguments.nodes, range(2, pool.MOST + 1, 2), int)
        save(pool.measure(sizes, whole_number("--cycles", arguments.cycles, 2, 1_000_000),
                          given_seed(arguments)))
    elif what == "allocation":
        save(allocation.measure(given_seed(arguments)))
    elif what == "paper":
        return paper.measure(_listed("--rate", arguments.rate, RATES), parts, out)
    elif what == "takeover":
        from . import takeover
        save(takeover.measure(rounds))
    elif what == "scale":
        # After each point, as the whole takes hours.
        scale.measure(parts, against, Progress(), save)
    elif what in simulated.SIMULATED:
        save(simulated.measure(what, widths, given_seed(arguments), pcap=arguments.pcap))
    elif what == "size":
        options = [*["keys"] * (arguments.keys or arguments.managed),
                   *["managed"] * arguments.managed, *["observed"] * arguments.observed]
        save({width: synthesised.size(width, Progress(), *options) for width in widths})
    else:
        save({width: synthesised.clock(parts, width, Progress()) for width in widths})
    return 0


def _needs(what, parts):
    """Extras that a measurement needs."""
    sim = what in simulated.SIMULATED or what == "paper" or "latency" in parts
    synthesis = what in ("size", "clock") or {"size", "clock"} & {*parts}
    manager = ["manager"] if what == "takeover" else []
    return [*manager, *(["sim"] if sim else []), *(["boards", "formal"] if synthesis else [])]


def _listed(option, text, allowed, read=str):
    """The items of a list with commas; all must be allowed."""
    try:
        items = [read(item) for item in text.split(",")]
    except ValueError:
        items = []
    if not items or not set(items) <= set(allowed):
        names = (f"{allowed[0]} to {allowed[-1]}, in steps of {allowed.step}"
                 if isinstance(allowed, range) else ", ".join(map(str, allowed)))
        raise UserError(f"{option} must be of {names}, not {text!r}")
    return items
