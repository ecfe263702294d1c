"""``dxpu model what-if``: what changes of fabric or workload bring, one by one."""

import argparse
import dataclasses
import json

from .inputs import add_case, given

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the job."""
    add_case(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what each change brings."""
    from dxpu_performance.kernels import share_kept
    from dxpu_performance.measured import STORED, read
    from dxpu_performance.prediction import closed_form
    from dxpu_performance.what_if import (
        FABRIC_CHANGES,
        WORKLOAD_CHANGES,
        effects,
        gateware_changes,
    )
    asked = given(arguments)
    changes = FABRIC_CHANGES + WORKLOAD_CHANGES
    if arguments.rtl or STORED.exists():
        changes = gateware_changes(read(arguments.rtl or STORED)) + changes
    shown = []
    for case in asked.cases:
        before = share_kept(closed_form(case).total)
        found = effects(case, changes)
        shown.append({"round_trip_us": case.fabric.far_round_trip_us, "kept": before,
                      "changes": [dataclasses.asdict(effect) for effect in found]})
        if arguments.json:
            continue
        wide = max(len(effect.name) for effect in found)
        print(f"{'change':<{wide}} {'kept':>7} {'points':>7} {'round trip':>11} {'to GPU':>11}")
        print(f"{'as it is: ' + case.fabric.source:<{wide}} {100 * before:>5.1f} % {'':>7} "
              f"{case.fabric.far_round_trip_us:>8.2f} us "
              f"{case.fabric.to_gpu_gb_s(case.gpus):>6.2f} GB/s")
        for effect in found:
            print(f"{effect.name:<{wide}} {100 * effect.kept:>5.1f} % {effect.points:>+7.1f} "
                  f"{effect.round_trip_us:>8.2f} us {effect.to_gpu_gb_s:>6.2f} GB/s")
    if arguments.json:
        print(json.dumps({"workload": asked.name, "notes": asked.notes, "answers": shown},
                         indent=2))
    for note in asked.notes if not arguments.json else ():
        print(f"note: {note}")
    return 0
