"""Scenarios for a booted guest.

Each scenario begins and ends with empty slots; its evidence is the output of the guest.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import cocotb
from cocotb.triggers import Timer

from dxpu_sim.endpoint.driver import REGISTERS
from dxpu_sim.endpoint.gpu import MSIX_TABLE
from dxpu_sim.system.setup import wait_for_slot

from .acs import WANTED, isolated, parse
from .run import AER_WORDS, DEVICES, DOMAIN, ROOT, UPSTREAM, Run, gpu_name, port_name, slot_file

__all__ = ["MACHINES", "SCENARIOS", "Machine", "Scenario", "boot"]


@dataclass(frozen=True)
class Machine:
    """Differences between simulations: design, kernel options, fabric."""

    text: str
    #: More arguments of :class:`~dxpu_sim.system.design.System`.
    system: dict = field(default_factory=dict)
    kernel: str = ""
    #: Share of frames lost by every Ethernet switch.
    loss: float = 0.0
    guests: int = 1


MACHINES = {
    "plain": Machine("surprise hot-plug, a fabric that loses nothing"),
    "lossy": Machine("the same, every switch loses one frame in a hundred", loss=0.01),
    "mps": Machine("pci=pcie_bus_perf: Linux sets payload sizes", kernel="pci=pcie_bus_perf"),
    "dpc": Machine("Downstream Port Containment instead of surprise", system={"dpc": True},
                   kernel="pcie_ports=dpc-native"),
    "keyed": Machine("`dxpu manager run`, a process of its own, finds all nodes by frames",
                     system={"keys": True, "managed": True, "paths": 1, "peers": 2, "streams": 1}),
    "two": Machine("two guests, each on a host proxy of its own", system={"hosts": 2}, guests=2),
}


@dataclass(frozen=True)
class Scenario:
    """A test of a guest."""

    name: str
    #: Key of :data:`MACHINES`.
    machine: str
    run: Callable
    #: Run by default.
    default: bool

    @property
    def text(self) -> str:
        """Description in one line: the docstring of the scenario."""
        return " ".join(self.run.__doc__.split())


#: Scenarios by name, in the order in which they are run.
SCENARIOS: dict[str, Scenario] = {}


def scenario(machine: str = "plain", *, default: bool = False):
    """Decorator: turns a coroutine function with a :class:`Run` as argument into a scenario."""
    def register(function):
        SCENARIOS[function.__name__] = Scenario(function.__name__, machine, function, default)
        return function
    return register


async def boot(run: Run) -> None:
    """The kernel finds a switch with empty slots."""
    ports = run.system.ports
    await run.host.say("insmod /vmd.ko")
    await run.host.wait_for(f"test -e /sys/bus/pci/slots/{ports}/power", "hot-plug slots",
                            timeout_s=90)


@scenario(default=True)
async def empty(run: Run) -> None:
    """Linux boots with empty slots and leaves windows for GPUs."""
    host, ports = run.host, run.system.ports
    tree = await run.lspci(f"-tv -s {DOMAIN}::", "empty slots")
    run.check([line.endswith("]--") for line in tree.splitlines()] == [True] * ports,
              f"no switch with {ports} empty slots: {tree}")
    slots = (await host.say("ls /sys/bus/pci/slots")).split()
    run.check(sorted(slots, key=int) == [str(n + 1) for n in range(ports)],
              f"slots are {slots}, not 1 to {ports}")
    for port in range(ports):
        said = await run.lspci(f"-vv -s {port_name(port)}",
                               "a port with an empty slot" if port == 0 else "")
        memory = re.findall(r"memory behind bridge: \S+ \[size=(\S+)\]", said, re.IGNORECASE)
        run.check(memory == ["24M", "2M"], f"windows of port {port}: {memory}")
        for words in ("PresDet-", "DLActive-", "HotPlug+ Surprise+", "AttnBtn+", "PwrInd+",
                      "Kernel driver in use: pcieport"):
            run.check(words in said, f"no {words} in: {said}")
        slot = await host.say(f"cat {slot_file(port, 'adapter')}")
        run.check(slot == "0", f"adapter of slot {port + 1} is {slot}")


@scenario(default=True)
async def bind(run: Run) -> None:
    """A GPU is bound while Linux runs: it appears, has its BARs, its memory reads back, its copy
    engine reads and writes the guest's memory."""
    host, name = run.host, gpu_name(0)
    bar = await run.bind(0, 0)
    said = await run.lspci(f"-vvv -s {name}", "a GPU has come")
    for words in ("3D controller", "Physical Slot: 1", "[size=64K]", "[size=16M]",
                  "Device Serial Number"):
        run.check(words in said, f"no {words} in: {said}")
    await run.lspci(f"-tv -s {DOMAIN}::", "a GPU has come")
    port = await run.lspci(f"-vv -s {port_name(0)}")
    run.check("PresDet+" in port and "DLActive+" in port, f"no card in: {port}")
    magic = await host.say(f"gpu read {bar}0 {REGISTERS['MAGIC']}")
    run.check(bytes.fromhex(magic)[::-1] == b"DXPG", f"register MAGIC reads {magic}")
    serial = await host.say(f"gpu read {bar}0 {REGISTERS['SERIAL_LOW']}")
    run.check(int(serial, 16) == 1, f"register SERIAL_LOW reads {serial}")
    await run.keep("video memory reads back", f"gpu fill {bar}2 0x1000 1024")
    await run.keep("the copy engine", f"gpu copy {bar}0 16384")
    await run.unbind(0, 0)


@scenario(default=True)
async def unbind(run: Run) -> None:
    """A GPU goes by agreement: as the guest's administrator wants it, and as the operator does."""
    host = run.host
    await run.bind(0, 0)
    await run.power_off(0)
    adapter = await host.say(f"cat {slot_file(0, 'adapter')}")
    run.check(adapter == "1", f"the card left slot 1 before the operator took it: {adapter}")
    await run.release(0, 0)
    await host.wait_for(f"grep -q 0 {slot_file(0, 'adapter')}", "an empty slot 1")
    await run.bind(1, 1)
    begin = await run.messages()
    await host.hurry(run.operator.proxy.write("control.detach", ports=2))
    await run.gone(1)
    await host.say(f"echo 15 > {slot_file(1, 'attention')}")  # indicators off, as ledmon would
    await host.hurry(wait_for_slot(run.operator.proxy, 1, detach=3, timeout_us=5000))
    await run.release(1, 1)
    said = await run.messages_since(begin, "the operator asks for a GPU", r"Slot\(2\)")
    run.check("Powering off due to button press" in said, f"no button in: {said}")
    run.check("Link Down" not in said, f"the card went before Linux let go: {said}")


@scenario(default=True)
async def surprise(run: Run) -> None:
    """A GPU is pulled while it is read: all ones, a line in the log, and nothing hangs."""
    host = run.host
    bar = await run.bind(0, 0)
    begin = await run.messages()
    await host.say(f"gpu watch {bar}0 0 > /tmp/watch & true")
    await host.wait_for("grep -q first /tmp/watch", "the first read")
    await run.pull(0)
    await host.wait_for("grep -q ones /tmp/watch", "all ones")
    await run.keep("reads of a GPU that is pulled", "cat /tmp/watch")
    await run.gone(0)
    said = await run.messages_since(begin, "a GPU is pulled", r"Slot\(1\)")
    run.check("Link Down" in said and "Card not present" in said, f"no removal in: {said}")
    await run.put_back(0, 0)


@scenario()
async def several(run: Run) -> None:
    """Several slots at once: all GPUs come together and go together, by surprise and not."""
    host, gpus = run.host, range(len(run.system.gpus))
    for gpu in gpus:
        await host.hurry(run.arrive(gpu, gpu + 2))
    for gpu in gpus:
        await run.found(gpu + 2)
    await run.lspci(f"-tv -s {DOMAIN}::", "several GPUs")
    for gpu in gpus:
        await host.say(f"setpci -s {gpu_name(gpu + 2)} COMMAND=0x6")
        serial = await host.say(f"gpu read {DEVICES}/{gpu_name(gpu + 2)}/resource0 "
                                f"{REGISTERS['SERIAL_LOW']}")
        run.check(int(serial, 16) == gpu + 1, f"GPU {gpu} says it is {serial}")
    await run.pull(0)
    await host.say(f"echo 0 > {slot_file(3, 'power')}")
    for gpu in gpus[:2]:
        await run.gone(gpu + 2)
    await run.put_back(0, 2)
    await run.release(1, 3)
    await host.say(f"gpu fill {DEVICES}/{gpu_name(gpus[-1] + 2)}/resource2 0 256")
    await run.unbind(gpus[-1], gpus[-1] + 2)


@scenario()
async def cycles(run: Run) -> None:
    """Fifty lives of GPUs in one slot, by agreement and by surprise in turn."""
    host = run.host
    for n in range(50):
        gpu = n % len(run.system.gpus)
        bar = await run.bind(gpu, 0)
        serial = await host.say(f"gpu read {bar}0 {REGISTERS['SERIAL_LOW']}")
        run.check(int(serial, 16) == gpu + 1, f"life {n}: GPU {gpu} says it is {serial}")
        if n % 2:
            await run.pull(gpu)
            await run.gone(0)
            await run.put_back(gpu, 0)
        else:
            await run.unbind(gpu, 0)
    run.evidence["fifty lives (/proc/interrupts)"] = await host.say(
        "grep -E 'pciehp|CPU' /proc/interrupts")


@scenario()
async def reset(run: Run) -> None:
    """Function Level Reset and Secondary Bus Reset through sysfs: the GPU is reset, and is the same
    device afterwards."""
    host, system, name = run.host, run.system, gpu_name(0)
    bar = await run.bind(0, 0)
    await host.say(f"gpu write {bar}0 {REGISTERS['SCRATCH']} 0x600dcafe")
    methods = await host.say(f"cat {DEVICES}/{name}/reset_method")
    run.check({"flr", "bus"} <= set(methods.split()), f"reset methods are {methods}")
    resets, begin = system.gpus[0].resets, await run.messages()
    await host.say(f"echo flr > {DEVICES}/{name}/reset_method && echo 1 > {DEVICES}/{name}/reset")
    run.check(system.gpus[0].function_resets == 1, "no Function Level Reset")
    await host.say(f"setpci -s {name} COMMAND=0x6")
    scratch = await host.say(f"gpu read {bar}0 {REGISTERS['SCRATCH']}")
    run.check(scratch == "00000000", f"SCRATCH is {scratch} after a Function Level Reset")
    await host.say(f"gpu write {bar}0 {REGISTERS['SCRATCH']} 0x600dcafe")
    run.operator.fault(0)
    system.links[0].ups.append(lambda: run.mended(0, 0))
    await host.say(f"echo bus > {DEVICES}/{name}/reset_method && echo 1 > {DEVICES}/{name}/reset")
    system.links[0].ups.pop()
    run.check(system.gpus[0].resets == resets + 1,
              f"{system.gpus[0].resets - resets} resets of the GPU")
    await host.say(f"setpci -s {name} COMMAND=0x6")
    scratch = await host.say(f"gpu read {bar}0 {REGISTERS['SCRATCH']}")
    run.check(scratch == "00000000", f"SCRATCH is {scratch} after a reset")
    run.evidence["after a reset (lspci)"] = await run.lspci(f"-v -s {name}")
    said, status = await host.run(f"dmesg | tail -n +{begin + 1} | grep 'Slot(1)'")
    run.check(status == 1, f"pciehp took the reset for a removal: {said}")
    await run.unbind(0, 0)


@scenario()
async def interrupts(run: Run) -> None:
    """MSI and MSI-X of a GPU reach the guest's interrupt controller: it has no driver there, so it
    is given the vector of an empty slot's port, whose count rises."""
    host, name, port = run.host, gpu_name(0), port_name(run.system.ports - 1)
    bar = await run.bind(0, 0)
    number = await host.say(f"ls {DEVICES}/{port}/msi_irqs")
    low, high = [await host.say(f"setpci -s {port} CAP_MSI+{n}.l") for n in (4, 8)]
    data = await host.say(f"setpci -s {port} CAP_MSI+c.w")

    async def count():
        line = await host.say(f"grep -E '^ *{number}:' /proc/interrupts")
        return int(line.split()[1])

    async def raised(what):
        before = await count()
        for n in range(3):
            await host.say(f"gpu write {bar}0 {REGISTERS['INTERRUPT']} 0")
            await host.wait_for(f"test $(grep -E '^ *{number}:' /proc/interrupts | "
                                f"awk '{{print $2}}') -eq {before + n + 1}", what)
        run.evidence[f"{what} (/proc/interrupts)"] = await host.say(
            f"grep -E '^ *{number}:' /proc/interrupts")

    await host.say(f"setpci -s {name} CAP_MSI+4.l={low} CAP_MSI+8.l={high} CAP_MSI+c.w={data} "
                   "CAP_MSI+2.w=1:1")
    await raised("three MSIs of a GPU")
    await host.say(f"setpci -s {name} CAP_MSI+2.w=0:1")
    for offset, value in ((0, low), (4, high), (8, data), (12, "0")):
        await host.say(f"gpu write {bar}0 {MSIX_TABLE + offset} 0x{value}")
    await host.say(f"setpci -s {name} CAP_MSIX+2.w=0x8000:0xc000")
    await raised("three MSI-X of a GPU")
    await run.unbind(0, 0)


@scenario()
async def rescan(run: Run) -> None:
    """A device that is removed through sysfs is found again by a rescan."""
    host, name = run.host, gpu_name(0)
    await run.bind(0, 0)
    await host.say(f"echo 1 > {DEVICES}/{name}/remove")
    await run.gone(0)
    await host.say("echo 1 > /sys/bus/pci/rescan", timeout_s=180)
    await run.found(0)
    await host.say(f"setpci -s {name} COMMAND=0x6")
    await run.keep("after a rescan", f"gpu fill {DEVICES}/{name}/resource2 0 512")
    await run.unbind(0, 0)


@scenario()
async def acs(run: Run) -> None:
    """With ACS turned on every slot is isolated, as Linux asks before it gives a GPU to a virtual
    machine; and a GPU still reaches memory."""
    host = run.host
    bar = await run.bind(0, 0)

    async def judge(port, what=""):
        names = [gpu_name(port)] * (port == 0) + [port_name(port), UPSTREAM]
        return isolated([parse(await run.lspci(f"-vvv -s {name}", what * (name == port_name(0))))
                         for name in names])

    for port in range(run.system.ports):
        run.check(not await judge(port), f"slot {port + 1} counts as isolated without ACS")
        await host.say(f"setpci -s {port_name(port)} ECAP_ACS+6.w={WANTED:#x}:{WANTED:#x}")
        run.check(await judge(port, "ACS turned on"), f"slot {port + 1} is not isolated with ACS")
    await run.keep("the copy engine under ACS", f"gpu copy {bar}0 8192")
    await run.unbind(0, 0)
    for port in range(run.system.ports):
        await host.say(f"setpci -s {port_name(port)} ECAP_ACS+6.w=0")


async def _pass_errors_on(run):
    """Set SERR# Enable of all bridges, as firmware does; nobody does so behind a VMD."""
    for name in (ROOT, UPSTREAM, *(port_name(p) for p in range(run.system.ports))):
        await run.host.say(f"setpci -s {name} BRIDGE_CONTROL=0x2:0x2")


@scenario()
async def error(run: Run) -> None:
    """A GPU sends a malformed write, and one under another's name: Linux' AER driver reads and
    decodes the errors of the port."""
    host, system = run.host, run.system
    await run.bind(0, 0)
    await _pass_errors_on(run)
    await host.say(f"setpci -s {port_name(0)} ECAP_ACS+6.w=1:1")  # Source Validation
    # Malformed TLPs must not be fatal, or Linux would reset the port.
    await host.say(f"setpci -s {port_name(0)} ECAP_AER+0xc.l=0:0x40000")
    begin = await run.messages()
    run.operator.fault(0)
    run.expected.append(AER_WORDS)
    # The length field of the first is 2; the requester ID of the second belongs to no bus there.
    short, foreign = "40000002 030000ff 00100000 deadbeef", "40000001 0700000f 00100000 deadbeef"
    for raw, bit in ((short, "MalfTLP"), (foreign, "ACSViol")):
        await host.hurry(system.mailboxes[system.names[0]].send(bytes.fromhex(raw)))
        await host.wait_for(f"dmesg | tail -n +{begin + 1} | grep -q {bit}",
                            f"{bit} in the log")
    said = await run.messages_since(begin, "errors of a GPU")
    run.check("severity=Uncorrected (Non-Fatal)" in said, f"severity in: {said}")
    run.check(f"TLP Header: {short[:26]}" in said, f"header in: {said}")
    run.mended(0, 0)
    await host.say(f"setpci -s {port_name(0)} ECAP_ACS+6.w=0:1")
    await run.unbind(0, 0)


@scenario("mps")
async def payload(run: Run) -> None:
    """Linux sets payload sizes: those that the path allows, and data goes through."""
    bar = await run.bind(0, 0)
    for name, what in ((UPSTREAM, "the upstream port"), (port_name(0), "a downstream port"),
                       (gpu_name(0), "a GPU")):
        said = await run.lspci(f"-vv -s {name}", f"payload of {what}")
        size = int(re.search(r"MaxPayload (\d+) bytes, MaxReadReq", said)[1])
        run.check(size == 256, f"MaxPayload of {what} is {size}")
    await run.keep("the copy engine at 256 bytes of payload", f"gpu copy {bar}0 65536")
    await run.unbind(0, 0)


@scenario("lossy")
async def dma(run: Run) -> None:
    """1 MiB to the GPU and back by its copy engine, over a fabric that loses one frame in a
    hundred."""
    bar = await run.bind(0, 0)
    lost = int(run.system.dut.lost.value)
    await run.keep("1 MiB over a bad fabric", f"gpu copy {bar}0 1048576", timeout_s=900)
    lost = int(run.system.dut.lost.value) - lost
    run.check(lost > 10, f"{lost} frames were lost")
    run.evidence["1 MiB over a bad fabric"] += f"\n(frames lost meanwhile: {lost})"
    await run.unbind(0, 0)


@scenario("lossy")
async def pulled(run: Run) -> None:
    """A GPU is pulled in the middle of a copy: all ones, a line in the log, no hang, no panic."""
    host = run.host
    bar = await run.bind(0, 0)
    begin = await run.messages()
    await host.say(f"(gpu copy {bar}0 1048576; echo status $?) > /tmp/copy 2>&1 & true")
    root = run.host.root
    before = root.counts["bytes read"]

    async def some():
        while root.counts["bytes read"] < before + 20_000:
            await Timer(10, "us")
    await host.hurry(some())
    await run.pull(0)
    await host.wait_for("grep -q status /tmp/copy", "end of the copy")
    said = await run.keep("a copy whose GPU is pulled", "cat /tmp/copy")
    run.check("the GPU is gone" in said and "status 3" in said, f"the copy said: {said}")
    await run.gone(0)
    await run.messages_since(begin, "a GPU is pulled from a copy", r"Slot\(1\)")
    await run.put_back(0, 0)
    bar = await run.bind(1, 0)
    await host.say(f"gpu copy {bar}0 4096")
    await run.unbind(1, 0)


@scenario("dpc")
async def containment(run: Run) -> None:
    """A GPU is pulled from a port with DPC: Linux' driver reads the trigger, recovers the port, and
    another GPU serves there."""
    host = run.host
    await run.bind(0, 0)
    begin = await run.messages()
    run.expected.append(AER_WORDS)
    await run.pull(0)
    await run.gone(0)
    await host.wait_for(f"dmesg | tail -n +{begin + 1} | grep -q 'DPC'", "containment in the log")
    said = await run.messages_since(begin, "containment")
    run.check("containment event" in said, f"no containment in: {said}")
    await run.put_back(0, 0)
    bar = await run.bind(1, 0)
    await run.keep("another GPU after containment", f"gpu fill {bar}2 0 256")
    await run.unbind(1, 0)


@scenario("two")
async def handover(run: Run) -> None:
    """A GPU that one guest gives back serves another guest on another host proxy."""
    other, = run.others
    operation = run.operator.operation
    for guest, told in ((run, "the first guest"), (other, "the second guest"), (run, "again")):
        # Generations go on from one host to the next: the box's row has them, too.
        guest.operator.operation = operation = operation + 2
        bar = await guest.bind(0, 0)
        magic = await guest.host.say(f"gpu read {bar}0 {REGISTERS['MAGIC']}")
        guest.check(bytes.fromhex(magic)[::-1] == b"DXPG", f"{told}: MAGIC reads {magic}")
        run.evidence[f"{told} copies"] = await guest.host.say(f"gpu copy {bar}0 16384")
        run.evidence[f"{told} (lspci -tv)"] = await guest.lspci(f"-tv -s {DOMAIN}::")
        for idle in (r for r in (run, other) if r is not guest):
            said, status = await idle.host.run(f"test -e {DEVICES}/{gpu_name(0)}")
            run.check(status == 1, f"both guests have the GPU: {said}")
        await guest.unbind(0, 0)
        operation = guest.operator.operation


@scenario("keyed")
async def commands(run: Run) -> None:
    """`dxpu attach` and `dxpu detach` give GPUs of two boxes to the guest and take them away, one
    after the other: pciehp reports each, the guest uses it, and lets go as the button is
    pressed."""
    host = run.host
    for gpu in (0, len(run.system.gpus) - 1):
        begin = await run.messages()
        bar = await run.bind(gpu, 0)
        said = await run.messages_since(begin, f"`dxpu attach` of GPU {gpu}", r"Slot\(1\)")
        for words in ("Card present", "Link Up"):
            run.check(words in said, f"no {words} in: {said}")
        serial = await host.say(f"gpu read {bar}0 {REGISTERS['SERIAL_LOW']}")
        run.check(int(serial, 16) == gpu + 1, f"GPU {gpu} says it is {serial}")
        await run.keep(f"GPU {gpu} copies", f"gpu copy {bar}0 16384")
        begin = await run.messages()
        leaves = cocotb.start_soon(host.hurry(run.operator.release(gpu, 0)))
        await run.gone(0)
        await host.say(f"echo 15 > {slot_file(0, 'attention')}")  # indicators off, as ledmon would
        await leaves
        run.operator.routes.present.discard(0)
        said = await run.messages_since(begin, f"`dxpu detach` of GPU {gpu}", r"Slot\(1\)")
        run.check("Powering off due to button press" in said, f"no button in: {said}")
        await host.wait_for(f"grep -q 0 {slot_file(0, 'adapter')}", "an empty slot 1")
