"""``dxpu model predict``: what a workload keeps of its speed, why, and what would help."""

import argparse
import dataclasses
import json

from dxpu_cli.options import decimal_number

from .inputs import add_case, given

__all__ = ["add_arguments", "answer", "run"]

#: Changes that bring less than this share are not named.
LEAST_GAIN = 0.001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the job."""
    add_case(parser)
    parser.add_argument("--keep", metavar="PERCENT", default="90",
                        help="share of speed that has to be kept")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Predict, and print an answer for each round trip."""
    from dxpu_performance.prediction import longest_round_trip_us, predict
    from dxpu_performance.what_if import WORKLOAD_CHANGES, effects
    keep = decimal_number("--keep", arguments.keep, 0.1, 99.9) / 100
    asked = given(arguments)
    shown = []
    for number, case in enumerate(asked.cases):
        found, longest = predict(case), longest_round_trip_us(case, keep)
        helps = [effect for effect in effects(case) if effect.gain >= LEAST_GAIN]
        helps.sort(key=lambda effect: -effect.gain)
        if arguments.json:
            shown.append(_as_data(case, found, keep, longest, helps))
            continue
        if number:
            print()
        own = {change.name for change in WORKLOAD_CHANGES}
        print(answer(found, keep, longest, [effect for effect in helps if effect.name in own] +
                     [effect for effect in helps if effect.name not in own]))
        print("\n".join(_details(case, found)))
    if arguments.json:
        print(json.dumps({"workload": asked.name, "notes": asked.notes, "answers": shown},
                         indent=2))
    else:
        print("".join(f"\nnote: {note}" for note in asked.notes).lstrip("\n"), end="")
        if asked.notes:
            print()
    return 0


def answer(found, keep, longest_us, helps) -> str:
    """The answer as one sentence: share and range, whether that is enough, why, what to do."""
    yes = found.kept >= keep
    if longest_us == float("inf"):
        limit = ", at any round trip"
    elif longest_us == 0:
        limit = ", at no round trip"
    else:
        limit = f", {'up to' if yes else 'only up to'} {longest_us:.1f} us"
    text = (f"{100 * found.kept:.1f} % ({100 * found.low:.0f} to {100 * found.high:.0f}); keeps "
            f"{100 * keep:g} %: {'yes' if yes else 'no'}{limit}; cause: ")
    text += ", ".join(f"{name} {100 * share:.0f} %"
                      for name, share in found.causes.shares().items()) or "none"
    text += "; what would help: "
    return text + (", ".join(f"{effect.name} {100 * effect.gain:+.1f}" for effect in helps[:4])
                   or "nothing that the model knows")


def _details(case, found):
    fabric, link = case.fabric, case.link(case.round_trips)
    yield (f"  fabric: {fabric.source}; round trip {fabric.far_round_trip_us:.2f} us, "
           f"{fabric.delay_us:.2f} us more than natively")
    yield (f"  copies to GPU: {fabric.to_gpu_gb_s(case.gpus):.2f} GB/s, natively "
           f"{case.native.to_gpu_gb_s:.2f}; from GPU: {fabric.to_host_gb_s(case.gpus):.2f}, "
           f"natively {case.native.to_host_gb_s:.2f}")
    yield (f"  closed form: {100 * found.kept:.1f} %, with {link.round_trips:.2f} round trips for "
           f"each kernel; simulated: {100 * found.serial:.1f} % if commands are fetched one by "
           f"one, {100 * found.prefetch:.1f} % if ahead")
    if case.program.native_us is not None:
        ratio = case.native.time_us / case.program.native_us
        yield f"  native run, simulated: {100 * ratio:.1f} % of the time in the trace"


def _as_data(case, found, keep, longest_us, helps):
    return {
        "kept": found.kept, "low": found.low, "high": found.high, "serial": found.serial,
        "prefetch": found.prefetch, "keep": keep, "keeps": found.kept >= keep,
        "longest_round_trip_us": None if longest_us == float("inf") else longest_us,
        "causes": dataclasses.asdict(found.causes),
        "round_trip_us": case.fabric.far_round_trip_us, "fabric": case.fabric.source,
        "to_gpu_gb_s": case.fabric.to_gpu_gb_s(case.gpus),
        "to_host_gb_s": case.fabric.to_host_gb_s(case.gpus),
        "helps": [dataclasses.asdict(effect) for effect in helps]}
