"""What Linux may complain about: everything else at level "warning" or worse is an error."""

import re
from collections.abc import Iterable

__all__ = ["ALLOWED", "complaints"]

#: Pattern, and why it is no fault of the design.
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


def complaints(dmesg: str, expected: Iterable[str] = ()) -> list[str]:
    """Lines of ``dmesg -r`` at level warning or worse that are neither in :data:`ALLOWED` nor
    ``expected``."""
    patterns = [*ALLOWED, *expected]
    found = []
    for line in dmesg.splitlines():
        match = re.match(r"<(\d+)>(.*)", line)
        if match and int(match[1]) & 7 <= 4 and not any(
                re.search(pattern, match[2]) for pattern in patterns):
            found.append(match[2])
    return found
