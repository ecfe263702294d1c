"""Hosts with one wrong part, to be detected by :mod:`dxpu_sim.software_host.audit`.

``$DXPU_MUTANT``: name of a class in :data:`MUTANTS`.
"""

import os

import cocotb
from cocotb.task import bridge

from dxpu_host import Host, HostError
from dxpu_host.arq import Receiver, Verdict
from dxpu_host.box import Box
from dxpu_host.credits import Accounts
from dxpu_host.link import Link
from dxpu_host.requests import Request, Requests
from dxpu_host.slots import HostSlot

from .audit import AuditFailed
from .bench import Run, begin


class AcksTooEarly(Host):
    """Acknowledges frames not yet taken."""

    class BOX(Box):
        class LINK(Link):
            class RECEIVER(Receiver):
                def take(self, seq, slot, urgent, now):
                    verdict = super().take(seq, slot, urgent, now)
                    if verdict is Verdict.GAP:
                        self.expected = seq + 1
                    return verdict


class IgnoresCredits(Host):
    """Sends all TLPs, regardless of credits."""

    class BOX(Box):
        class ACCOUNTS(Accounts):
            def allows(self, cls, units):
                return True


class ReusesTags(Host):
    """Gives out tags that are in use."""

    class SLOT(HostSlot):
        class REQUESTS(Requests):
            def add(self, tlp, deadline):
                tlp.tag, self._next = self._next, (self._next + 1) % 2
                request = self._open[tlp.tag] = Request(tlp, deadline)
                return request


#: Expected report for each mutant.
MUTANTS = {AcksTooEarly: "the host acknowledges", IgnoresCredits: "has no credits",
           ReusesTags: "is in use"}


@cocotb.test()
async def a_mutant_is_found(dut):
    """The mutant reads video memory; the wire loses frames."""
    mutant = globals()[os.environ["DXPU_MUTANT"]]
    run = Run(dut, mutant, bad={"loss": 0.05})
    await run.system.prepare()

    @bridge
    def job():
        try:
            with run.host:
                driver, = begin(run, slots=(1,))
                for _ in range(20):
                    driver.device.bar[2].read(0, 9000)
        except (AuditFailed, HostError) as error:
            return str(error)
        return "nothing"

    found = await job()
    assert MUTANTS[mutant] in found, found
