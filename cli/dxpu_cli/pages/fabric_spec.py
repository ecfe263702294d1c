"""Tables and traces of ``docs/reference/fabric-spec.md``.

``python -m dxpu_cli.pages.fabric_spec`` searches at both sizes (some minutes) and updates the page;
``python -m dxpu_cli.pages.fabric_spec quick`` updates the quick size and the traces only. Tests
check the page against the searches.
"""

import re
import sys
from pathlib import Path

from dxpu_model.spec.catalogue import MODELS, SIZES, cases
from dxpu_model.spec.chart import chart
from dxpu_model.spec.search import search
from dxpu_tools.files import write_text

__all__ = ["FIGURES", "PAGE", "figure", "table", "trace", "traces", "updated"]

#: The page, in a source tree.
PAGE = Path(__file__).parents[3] / "docs/reference/fabric-spec.md"


#: Pictures on the page, with model and name of their cases.
FIGURES = {
    PAGE.parents[1] / "figures" / "spec-fail-over.svg": ("session", "new space at fail-over"),
    PAGE.parents[1] / "figures" / "spec-candidates.svg": ("session", "one tag for two candidates"),
    PAGE.parents[1] / "figures" / "spec-counter-nonce.svg": ("keyed", "counter nonce"),
}


def table(results) -> str:
    """Table with a row for each case that holds; results are pairs of case and result."""
    rows = ["| model | case | states | actions to the farthest |", "|---|---|---|---|"]
    rows += [f"| {case.model} | {case.name} | {result.states:,} | {result.depth} |"
             for case, result in results if case.breaks is None]
    return "\n".join(rows)


def trace(case, result) -> str:
    """Fault of a flawed scheme, and the shortest way to it."""
    steps = (f"{number:>3}  {step}" for number, step in enumerate(result.trace, 1))
    return "\n".join([f"**{case.name}**: {result.fault}.", "", "```text", *steps, "```"])


def traces(results) -> str:
    """:func:`trace` of each flawed scheme, by model."""
    parts = []
    for model in MODELS:
        parts.append(f"### {model}")
        for case, result in results:
            if case.model == model and case.breaks is not None:
                parts.append(trace(case, result))
    return "\n\n".join(parts)


def figure(model, name) -> str:
    """The message chart of one case, as SVG."""
    return chart(next(case for case in cases() if (case.model, case.name) == (model, name)).make())


def updated(page: str, **parts: str) -> str:
    """The page with new text between ``<!-- generated: name -->`` and ``<!-- end -->``."""
    for name, text in parts.items():
        page, count = re.subn(
            rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)",
            lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", page, flags=re.S)
        if count != 1:
            raise ValueError(f"the page must have one part named {name!r}, not {count}")
    return page


def main(sizes=SIZES):
    """Search and write the page."""
    page = PAGE.read_text()
    for size in sizes:
        results = []
        for case in cases(size):
            print(f"{size}: {case.model}: {case.name}", flush=True)
            results.append((case, search(case.make())))
        page = updated(page, **{size: table(results)})
        if size == "quick":
            page = updated(page, traces=traces(results))
    write_text(PAGE, page)
    for path, case in FIGURES.items():
        write_text(path, figure(*case))


if __name__ == "__main__":
    main(sys.argv[1:] or SIZES)
