"""``dxpu spec``: search the models of the fabric's protocol completely."""

import json
import sys
import time

from dxpu_cli.options import file_to_write, folder_to_write
from dxpu_cli.progress import Notices
from dxpu_model.spec.catalogue import MODELS, SIZES, Case, cases
from dxpu_model.spec.chart import chart
from dxpu_model.spec.search import Result, search
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

__all__ = ["add_arguments", "found", "run"]

_ROW = "{:<9} {:<36} {:>9} {:>6}  {:<8} {:<8} {:>7}"


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("--model", action="append", metavar="NAME",
                        help="only this model; may be given several times (default: all)")
    parser.add_argument("--list", action="store_true", help="show models and cases, search nothing")
    parser.add_argument("--size", choices=SIZES, default="quick",
                        help="quick: seconds; full: minutes")
    parser.add_argument("--states", type=int, metavar="N",
                        help="end a search at this many states (default: when all are visited)")
    parser.add_argument("--depth", type=int, metavar="N",
                        help="end a search at this many actions from the start")
    parser.add_argument("--trace", action="store_true",
                        help="show the fewest actions that lead to what is wrong")
    parser.add_argument("--draw", metavar="FOLDER",
                        help="draw what breaks a session as message charts (SVG) into this folder")
    parser.add_argument("--json", metavar="FILE", help="write the results here, too")


def run(arguments) -> int:
    """Search; returns 0 only if every correct model holds, and every flawed model is found
    broken."""
    for option, value in (("--states", arguments.states), ("--depth", arguments.depth)):
        if value is not None and value < 1:
            raise UserError(f"{option} must be 1 or more, not {value}")
    for name in arguments.model or ():
        if name not in MODELS:
            raise UserError(f"--model must be one of {', '.join(MODELS)}, not {name!r}")
    file = file_to_write("--json", arguments.json)
    folder = folder_to_write("--draw", arguments.draw) if arguments.draw else None
    chosen = [case for case in cases(arguments.size)
              if not arguments.model or case.model in arguments.model]
    if arguments.list:
        return _list(chosen)
    print(_ROW.format("model", "case", "states", "depth", "expected", "found", "seconds"))
    results = [(case, _search(case, arguments)) for case in chosen]
    bad = [case for case, result in results if not _as_expected(case, result)]
    try:
        if file is not None:
            write_text(file, json.dumps(_report(arguments, results, not bad), indent=1) + "\n")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for case, result in results:
                if case.model in ("session", "keyed") and result.fault:
                    write_text(folder / f"{case.name.replace(' ', '-')}.svg", chart(case.make()))
    except OSError as error:
        raise UserError(f"cannot write {error.filename!r}: {error.strerror}") from None
    states = sum(result.states for _, result in results)
    print(f"{len(results) - len(bad)} of {len(results)} as expected, {states:,} states")
    return 1 if bad else 0


def found(result: Result) -> str:
    """``holds``, ``broken``, or ``open`` if the search stopped early."""
    return "broken" if result.fault else "holds" if result.complete else "open"


def _as_expected(case: Case, result: Result) -> bool:
    if case.breaks is None:
        return result.holds
    return result.fault is not None and case.breaks in result.fault


def _search(case, arguments):
    live, began, notices = sys.stdout.isatty(), time.monotonic(), Notices()

    def row(states, depth, outcome, seconds):
        return _ROW.format(case.model, case.name, f"{states:,}", depth,
                           "broken" if case.breaks else "holds", outcome, seconds)

    def tick(states, depth):
        seconds = time.monotonic() - began
        if live:
            print("\r" + row(states, depth, "...", ""), end="", flush=True)
        elif notices.due(seconds):
            print(row(states, depth, "...", f"{seconds:.1f}"), flush=True)

    result = search(case.make(), max_states=arguments.states, max_depth=arguments.depth, tick=tick)
    print(("\r" if live else "") + row(result.states, result.depth, found(result),
                                       f"{result.seconds:.1f}"), flush=True)
    if not _as_expected(case, result) or (arguments.trace and result.fault):
        if result.fault:
            print(f"    {result.fault}")
        for number, step in enumerate(result.trace, 1):
            print(f"    {number:>3}  {step}")
    return result


def _list(chosen):
    for model, about in MODELS.items():
        if any(case.model == model for case in chosen):
            print(f"{model}: {about}")
            for case in chosen:
                if case.model == model:
                    print(f"    {case.name}: " + (f"breaks, '{case.breaks}'" if case.breaks
                                                  else "holds"))
    return 0


def _report(arguments, results, ok):
    return {"ok": ok, "size": arguments.size, "cases": [
        {"model": case.model, "case": case.name, "expected": "broken" if case.breaks else "holds",
         "found": found(result), "as_expected": _as_expected(case, result),
         "states": result.states, "depth": result.depth, "seconds": round(result.seconds, 3),
         "fault": result.fault, "trace": list(result.trace)} for case, result in results]}
