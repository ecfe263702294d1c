"""Summary of the tests skipped on this machine, as the last line of a test run.

A test that needs a program or feature of the machine skips with "<tier>: <why>", such as "GTKWave:
no gtkwave (Debian: gtkwave xvfb)".
"""

from collections.abc import Sequence

__all__ = ["NotShown", "line"]


def line(reasons: Sequence[str]) -> str:
    """One line for the ``reasons`` of all skipped tests; empty if there are none."""
    tiers: dict[str, list[str]] = {}
    for reason in reasons:
        tier, colon, why = reason.removeprefix("Skipped: ").replace("\n", " ").partition(": ")
        whys = tiers.setdefault(tier, [])
        if colon and why not in whys:
            whys.append(why)
    told = ", ".join(f"{tier} ({'; '.join(whys)})" if whys else tier
                     for tier, whys in tiers.items())
    count = f"{len(reasons)} test{'s' * (len(reasons) > 1)} skipped"
    return f"not shown on this machine: {told}; {count}" if reasons else ""


class NotShown:
    """Pytest plugin of the reporting process."""

    def __init__(self):
        self._reasons = []

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self._reasons.append(report.longrepr[2])

    def pytest_unconfigure(self, config):
        if text := line(self._reasons):
            config.get_terminal_writer().line(text)
