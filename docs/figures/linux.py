"""The picture of a stock Linux as the host: ``python docs/figures/linux.py > linux.svg``."""

from architecture import INK, box, frame, text, wire

WIDTH, HEIGHT = 1000, 310


def draw():
    """The SVG as text."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        '<title>A stock Linux kernel on simulated proxies</title>',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/>'
        '</marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        frame(20, 20, 270, 270, "QEMU"),
        box(38, 56, 234, 62, "plain", "Debian's kernel", "PCI core, pciehp, AER, DPC",
            "and its driver vmd"),
        box(38, 140, 234, 40, "plain", "x-pci-proxy-dev", "looks like a VMD"),
        box(38, 202, 112, 40, "plain", "memory", "shared"),
        box(160, 202, 112, 40, "plain", "qtest", "interrupts"),
        text(275, 40, "unmodified", size=11, anchor="end", fill="#52606d"),
        wire((155, 118), (155, 140)),
        frame(390, 20, 180, 270, "Python"),
        box(406, 56, 148, 40, "manager", "guest's shell", "scenarios"),
        box(406, 128, 148, 54, "pcie", "VMD, ECAM", "access to TLP"),
        box(406, 202, 148, 62, "pcie", "Root port", "AER root registers", "the only PCI model"),
        wire((272, 76), (406, 76), label="serial port", at=(335, 68)),
        wire((272, 160), (406, 160), label="every access", at=(335, 152)),
        wire((480, 182), (480, 202)),
        wire((94, 242), (94, 258), (330, 258), (330, 242), (406, 242), label="DMA",
             at=(370, 236)),
        wire((406, 218), (272, 218), label="MSI", at=(330, 212), both=False),
        frame(660, 20, 320, 270, "Verilator: RTL"),
        box(678, 206, 130, 54, "switch", "Host proxy", "the switch Linux sees"),
        box(678, 130, 284, 36, "mac", "Ethernet", "loses frames if it is to"),
        box(832, 206, 130, 54, "fabric", "Box proxies", "slots"),
        box(832, 56, 130, 44, "gpu", "GPUs", "models, Python"),
        wire((554, 233), (678, 233), label="TLPs", at=(616, 225)),
        wire((743, 206), (743, 166)),
        wire((897, 206), (897, 166)),
        wire((962, 233), (972, 233), (972, 78), (962, 78)),
        "</svg>\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    print(draw(), end="")
