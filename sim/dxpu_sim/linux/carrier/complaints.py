"""Permitted complaints of Linux: any other message at level "warning" or worse is an error.

A report of the kernel is its first line, with the dump below (registers, a call trace). Reports of
processor stalls are no complaints about the design: the machine was busy, or an access took long to
simulate.
"""

import re
from collections.abc import Iterable

__all__ = ["ALLOWED", "STALLS", "complaints", "stalls"]

#: Pattern, with the reason why the message is no fault of the design.
ALLOWED = {
    r"tsc: |TSC|APIC calibration|clocksource|hpet|Performance Events|unchecked MSR|x86/cpu"
    r"|Speculat|Spectre|RETBleed|MDS|kvm|RAS: ":
        "of QEMU's processor",
    r"can't derive routing for PCI INT|PCI INT .: no GSI":
        "a VMD has no INTx for its child domain, whatever their Interrupt Pin says",
    r"sched: RT throttling|hrtimer: interrupt took|rcu: |rcu_|INFO: NMI handler|perf: interrupt"
    r"|workqueue: .* hogged CPU|clocksource: ":
        "the guest's clock goes on while an access of its is simulated",
}
#: Beginning of a report about a stalled processor.
STALLS = re.compile(r"\b(rcu\w*: INFO: \w+ (self-)?detected (expedited )?stalls?"
                    r"|INFO: rcu\w* (self-)?detected (expedited )?stalls?"
                    r"|BUG: soft lockup|watchdog: CPU\d+: hard LOCKUP)")
#: Continuation lines of a report.
_DUMP = re.compile(
    r"\s|\(detected by|\(t=\d+ jiffies|Sending NMI|NMI backtrace|CPU: \d+ |Hardware name:"
    r"|Modules linked in:|RIP: |RSP: |R[A-D]X: |RBP: |R\d\d: |[FCG]S: |CR\d: |DR\d: |PKRU: |EFLAGS"
    r"|Code: |Call Trace:|</?(TASK|IRQ|NMI|SOFTIRQ)>|\??\s*[\w.]+\+0x[0-9a-f]+/0x|task:|rcu: \s"
    r"|rcu: rcu_\w+ kthread|rcu: RCU grace-period|Workqueue: |Tainted|---\[ end trace")
_CUT = "[ cut here ]"


def _reports(dmesg):
    """First line of each report at level warning or worse, without its level."""
    reporting = False
    for line in dmesg.splitlines():
        match = re.match(r"<(\d+)>((?:\[ *[\d.]+\](?:\[ *[TC]\d+\])? ?)?(.*))", line)
        if not match or _CUT in match[3]:
            continue
        if reporting and _DUMP.match(match[3]):
            continue
        reporting = int(match[1]) & 7 <= 4
        if reporting:
            yield match[2]


def complaints(dmesg: str, expected: Iterable[str] = ()) -> list[str]:
    """First lines of the unexpected reports in the output of ``dmesg -r``.

    Reports in :data:`ALLOWED`, in ``expected`` and in :data:`STALLS` are left out.
    """
    patterns = [*ALLOWED, *expected]
    return [report for report in _reports(dmesg)
            if not STALLS.search(report) and not any(re.search(p, report) for p in patterns)]


def stalls(said: str) -> list[str]:
    """Lines about stalled processors in a kernel's log or console."""
    return [line.strip() for line in said.splitlines() if STALLS.search(line)]
