"""Options for a workload and a fabric, which several jobs of ``dxpu model`` share."""

import argparse
from dataclasses import dataclass, replace

from dxpu_cli.options import decimal_number, whole_number
from dxpu_tools.errors import UserError

from .traces import add_part, open_workload, part_of

__all__ = ["Given", "add_case", "given", "most_of", "refuse_steps", "round_trips"]

#: Options of a workload without a trace; each needs --kernel-us.
STEP = ("launches", "streams", "syncs", "copies", "copy_mb", "copies_back", "launch_us")


def add_case(parser: argparse.ArgumentParser) -> None:
    """Add the options of a workload and of a fabric."""
    workload = parser.add_argument_group("workload: a trace, or round figures of a step")
    workload.add_argument("trace", nargs="?", metavar="TRACE",
                          help="trace or list of durations, as `dxpu model show` reads it")
    workload.add_argument("--kernel-us", metavar="T", help="mean duration of kernels")
    workload.add_argument("--launches", metavar="N", help="kernels of a step (default: 1000)")
    workload.add_argument("--streams", metavar="N",
                          help="streams that run kernels at once (default: 1)")
    workload.add_argument("--syncs", metavar="N",
                          help="how often in a step the processor waits for the GPU (default: 0)")
    workload.add_argument("--copies", metavar="N",
                          help="copies to the GPU in a step (default: 0)")
    workload.add_argument("--copy-mb", metavar="MB",
                          help="megabytes of each of these (default: 1)")
    workload.add_argument("--copies-back", metavar="N",
                          help="copies of 4 KiB from the GPU in a step (default: 0)")
    workload.add_argument("--launch-us", metavar="T",
                          help="time of the processor for a launch (default: 0)")
    workload.add_argument("--like", choices=["training", "inference"], default=None,
                          help="kind of the workload: round trips for each kernel as fitted on "
                          "ResNet-50, in place of one")
    workload.add_argument("--exposed", metavar="SHARE", default=None,
                          help="share of a longer copy that no kernel hides, 0 to 1 (default: as "
                          "fitted)")
    workload.add_argument("--gpus", metavar="N", default="1", help="GPUs of the job")
    add_part(workload)
    workload.add_argument("--most", metavar="N", default="4000",
                          help="kernels to simulate, from the middle of the trace")
    fabric = parser.add_argument_group("fabric: as measured on the gateware, or the paper's")
    fabric.add_argument("--rtl", metavar="FILE", default=None,
                        help="figures of `dxpu bench paper` (default: those of this version)")
    fabric.add_argument("--rate", choices=["100G", "10G", "1G"], default="100G",
                        help="rate of the line in that file")
    fabric.add_argument("--paper", action="store_true",
                        help="the paper's fabric: 6.8 us, 140 tags of 128 B, 100 Gb/s")
    fabric.add_argument("--rtt", metavar="US", default=None,
                        help="round trip of a read in us, in place of the measured one; several "
                        "with commas")
    fabric.add_argument("--tags", metavar="N", help="reads that the GPU has under way")
    fabric.add_argument("--read-bytes", metavar="N", help="bytes of each read")
    fabric.add_argument("--payload-bytes", metavar="N", help="bytes of each write of the GPU")
    fabric.add_argument("--line-gbit", metavar="G", help="rate of the line in Gbit/s")
    fabric.add_argument("--pcie", metavar="GENERATION", help="generation of PCIe, 3 to 5")
    fabric.add_argument("--proxies", metavar="N", help="proxies that share the GPUs (default: 1)")
    fabric.add_argument("--km", metavar="KM", help="length of the cable in km (default: 0)")
    fabric.add_argument("--loss", metavar="SHARE",
                        help="share of frames that are lost (default: 0)")
    fabric.add_argument("--load", metavar="SHARE",
                        help="share of the line that other traffic takes; round trips are those "
                        "measured under load (default: 0)")
    fabric.add_argument("--written", action="store_true",
                        help="copies to the GPU are writes of the CPU, not reads of the GPU")


def round_trips(arguments: argparse.Namespace) -> list[float | None]:
    """Round trips of ``--rtt`` in us; one None where the option is not given."""
    if arguments.rtt is None:
        return [None]
    return [decimal_number("--rtt", text, 0.01, 1_000_000) for text in arguments.rtt.split(",")]


@dataclass(frozen=True)
class Given:
    """What was asked: name of the workload, cases by round trip, remarks for the user."""

    name: str
    cases: list
    notes: tuple[str, ...]


def given(arguments: argparse.Namespace, made: dict | None = None) -> Given:
    """Read the options.

    ``made`` keeps what was made of the workload, for further calls with other fabrics: its name,
    program and remarks as ``program``, and ``native_us``.

    Raises
    ------
    UserError
        A number makes no sense, or there is no workload or two.
    """
    from dxpu_performance.prediction import Case, Native
    fabrics = [_fabric(arguments, trip) for trip in round_trips(arguments)]
    made = {} if made is None else made
    if "program" not in made:
        made["program"] = _program(arguments, fabrics[0])
    name, program, notes = made["program"]
    gpus = whole_number("--gpus", arguments.gpus, 1, 4096)
    exposed = (None if arguments.exposed is None
               else decimal_number("--exposed", arguments.exposed, 0, 1))
    first = fabrics[0]
    if "native_us" not in made:
        made["native_us"] = Native.of(program, first).time_us
    native = Native(made["native_us"], first.native_to_gpu_gb_s, first.native_to_host_gb_s)
    return Given(name, [Case(program, fabric, native, gpus, arguments.like, exposed)
                        for fabric in fabrics], notes)


def _fabric(arguments, round_trip):
    """The fabric at a round trip."""
    from dxpu_performance.fabric import Fabric
    from dxpu_performance.measured import STORED, read
    if arguments.paper and arguments.rtl:
        raise UserError("--paper and --rtl are two fabrics: give one")
    load = 0.0 if arguments.load is None else decimal_number("--load", arguments.load, 0, 1)
    if load and (arguments.paper or round_trip is not None):
        raise UserError("--load is for round trips measured on the gateware, not for "
                        f"{'--paper' if arguments.paper else '--rtt'}")
    if arguments.paper or (arguments.rtl is None and round_trip is not None
                           and not STORED.exists()):
        fabric = Fabric.of_paper() if round_trip is None else Fabric.of_paper(round_trip)
    elif arguments.rtl is None and not STORED.exists():
        raise UserError("there are no figures of the gateware: make them by `dxpu bench paper "
                        "--out rtl.json` and give --rtl rtl.json, or give --paper or --rtt")
    else:
        fabric = Fabric.of_measured(read(arguments.rtl or STORED), arguments.rate, load)
        if round_trip is not None:
            fabric = replace(fabric, round_trip_us=round_trip)
    return _changed(arguments, fabric)


def _changed(arguments, fabric):
    """A fabric with what options say."""
    numbers = {"tags": (1 << 20), "read_bytes": 4096, "payload_bytes": 4096, "proxies": 1024}
    for name, most in numbers.items():
        text = getattr(arguments, name)
        if text is not None:
            fabric = replace(fabric, **{name: whole_number(_option(name), text, 1, most)})
    if arguments.line_gbit is not None:
        rate = decimal_number("--line-gbit", arguments.line_gbit, 0.01, 10_000)
        fabric = replace(fabric, cable=replace(fabric.cable, line_gbit_s=rate))
    if arguments.pcie is not None:
        generation = whole_number("--pcie", arguments.pcie, 3, 5)
        fabric = replace(fabric, link=replace(fabric.link, generation=generation))
    if arguments.km is not None:
        fabric = replace(fabric, distance_km=decimal_number("--km", arguments.km, 0, 20_000))
    if arguments.loss is not None:
        loss = decimal_number("--loss", arguments.loss, 0, 1)
        if loss and not fabric.repeat_us:
            raise UserError("--loss needs the time until a lost frame is repeated: figures of the "
                            "gateware with losses (--rtl)")
        fabric = replace(fabric, loss=loss)
    return replace(fabric, written=arguments.written)


def _option(name):
    return "--" + name.replace("_", "-")


def refuse_steps(arguments: argparse.Namespace) -> None:
    """Refuse options of a workload without a trace."""
    for name in ("kernel_us", *STEP):
        if getattr(arguments, name) is not None:
            raise UserError(f"a trace and {_option(name)} are two workloads: give one")


def most_of(arguments: argparse.Namespace) -> int:
    """Kernels to simulate at most."""
    return whole_number("--most", arguments.most, 1, 10_000_000)


def _program(arguments, fabric):
    """Name, program and remarks of the workload."""
    from dxpu_performance.program import Step, of_step
    from dxpu_performance.sample import of_workload
    if arguments.trace is not None:
        refuse_steps(arguments)
        sample = of_workload(open_workload(arguments.trace, part_of(arguments)),
                             most=most_of(arguments))
        return arguments.trace, sample.program, sample.notes
    if arguments.kernel_us is None:
        raise UserError("there is no workload: give a trace, or --kernel-us")
    launches = _count(arguments, "launches", 1000, least=1)
    step = Step(
        decimal_number("--kernel-us", arguments.kernel_us, 0.001, 10**9), launches,
        _count(arguments, "streams", 1, least=1, most=min(1024, launches)),
        _count(arguments, "syncs", 0, most=launches), _count(arguments, "copies", 0),
        round(1e6 * decimal_number("--copy-mb", arguments.copy_mb or "1", 0.000001, 10**6)),
        _count(arguments, "copies_back", 0),
        decimal_number("--launch-us", arguments.launch_us or "0", 0, 10**6))
    program = of_step(step, to_gpu_gb_s=fabric.native_to_gpu_gb_s,
                      to_host_gb_s=fabric.native_to_host_gb_s)
    return "a step", program, ()


def _count(arguments, name, default, least=0, most=1_000_000):
    text = getattr(arguments, name)
    return default if text is None else whole_number(_option(name), text, least, most)
