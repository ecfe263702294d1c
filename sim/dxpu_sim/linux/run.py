"""Helpers of scenarios for a booted guest: shell lines, GPUs that come and go."""

from dataclasses import dataclass, field

from dxpu_sim.system.operate import Operator

from .host import LinuxHost

__all__ = ["AER_WORDS", "DEVICES", "DOMAIN", "ROOT", "UPSTREAM", "Run", "ScenarioFailed",
           "gpu_name", "port_name", "slot_file"]

#: PCI domain of the hierarchy below the VMD.
DOMAIN = "10000"
ROOT, UPSTREAM = f"{DOMAIN}:00:00.0", f"{DOMAIN}:01:00.0"
DEVICES = "/sys/bus/pci/devices"


#: Kernel messages about an error of port 0 caused by a scenario.
AER_WORDS = r"AER|DPC|PCIe Bus Error|TLP Header|pcieport 10000:02:00\.0: +(device|\[)"


def port_name(port):
    """Name of a downstream port."""
    return f"{DOMAIN}:02:{port:02x}.0"


def gpu_name(port):
    """Name of the function in a slot: bus numbers follow the order of ports."""
    return f"{DOMAIN}:{3 + port:02x}:00.0"


def slot_file(port, name):
    """Path of a slot's file in sysfs."""
    return f"/sys/bus/pci/slots/{port + 1}/{name}"


class ScenarioFailed(Exception):
    """A check did not hold; the message names the check, with output of the guest."""


@dataclass
class Run:
    """A booted guest, and its results so far.

    Attributes
    ----------
    evidence : dict
        Output of the guest, by topic.
    expected : list of str
        Patterns of kernel messages caused by the scenarios, which are no complaints.
    others : list of Run
        The other guests of the machine.
    operator : :class:`~dxpu_sim.system.operate.Operator`
        Operator who binds GPUs to this guest.
    """

    host: LinuxHost
    evidence: dict[str, str] = field(default_factory=dict)
    expected: list[str] = field(default_factory=list)
    others: list["Run"] = field(default_factory=list)
    operator: Operator | None = None

    def __post_init__(self):
        self.system = self.host.system
        if self.operator is None:
            self.operator = Operator(self.system, host=self.host.number)

    def check(self, held: bool, what: str) -> None:
        """End the scenario unless ``held``."""
        if not held:
            raise ScenarioFailed(what)

    async def keep(self, what: str, line: str, **options) -> str:
        """Run a line and keep its output as evidence."""
        self.evidence[what] = said = await self.host.say(line, **options)
        return said

    async def lspci(self, options: str, what: str = "") -> str:
        """Output of ``lspci``; kept as evidence of ``what``.

        Errors are dropped: the guest has no list of modules, of which ``lspci`` would complain.
        """
        said = await self.host.say(f"lspci {options} 2>/dev/null")
        if what:
            self.evidence[f"{what} (lspci {options.split()[0]})"] = said
        return said

    async def messages_since(self, begin: int, what: str, pattern: str = "") -> str:
        """Kernel messages after the first ``begin`` lines, kept as evidence of ``what``."""
        line = f"dmesg | tail -n +{begin + 1}" + f" | grep -E '{pattern}'" * bool(pattern)
        return await self.keep(f"{what} (dmesg)", line)

    async def messages(self) -> int:
        """Number of lines of the kernel's log."""
        return int(await self.host.say("dmesg | wc -l"))

    async def bind(self, gpu: int, port: int) -> str:
        """Bind a GPU, wait for the kernel, and enable memory and bus mastering, as a driver would.

        Returns the beginning of the names of its BARs' files.
        """
        await self.host.hurry(self.arrive(gpu, port))
        await self.found(port)
        # In a VMD's domain Linux leaves the indicators to user space (as ledmon does): power on.
        await self.host.say(f"echo 7 > {slot_file(port, 'attention')}")
        await self.host.say(f"setpci -s {gpu_name(port)} COMMAND=0x6")
        return f"{DEVICES}/{gpu_name(port)}/resource"

    async def found(self, port: int) -> None:
        """Wait until the kernel has found a device in a slot, with its BARs."""
        await self.host.wait_for(f"test -e {DEVICES}/{gpu_name(port)}/resource2",
                                 f"a device in slot {port + 1}")

    async def arrive(self, gpu: int, port: int) -> None:
        """Bind a GPU, and wait for its link."""
        await self.operator.commit(gpu, port)
        await self.operator.wait_for_slot(port, link=1)
        self.mended(gpu, port)

    def mended(self, gpu: int, port: int) -> None:
        """TLPs to and from a GPU no longer get lost."""
        self.system.checker.mended(self.system.names[gpu])
        self.operator.routes.present.add(port)

    async def gone(self, port: int) -> None:
        """Wait until the kernel has released a slot."""
        await self.host.wait_for(f"test ! -e {DEVICES}/{gpu_name(port)}",
                                 f"no device in slot {port + 1}")

    async def power_off(self, port: int) -> None:
        """Turn a slot off, as the guest's administrator."""
        await self.host.say(f"echo 0 > {slot_file(port, 'power')}")
        await self.gone(port)

    async def release(self, gpu: int, port: int) -> None:
        """Release the GPU, as the operator."""
        async def work():
            await self.operator.release(gpu, port)
            await self.operator.wait_for_slot(port, link=0, drained=1, timeout_us=2000)
        await self.host.hurry(work())
        self.operator.routes.present.discard(port)

    async def unbind(self, gpu: int, port: int) -> None:
        """Power off and release an unused GPU."""
        await self.power_off(port)
        await self.release(gpu, port)

    async def pull(self, gpu: int) -> None:
        """Pull a GPU from its box, during any activity."""
        await self.host.hurry(self.operator.pull(gpu))

    async def put_back(self, gpu: int, port: int) -> None:
        """Release the slot, and put the GPU back into its box, unbound."""
        self.operator.routes.present.discard(port)
        await self.release(gpu, port)
        await self.host.hurry(self.operator.put_back(gpu))
