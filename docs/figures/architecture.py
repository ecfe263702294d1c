"""The picture of the architecture: ``python docs/figures/architecture.py > architecture.svg``."""

from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1060, 520
START = ' marker-start="url(#a)"'
INK, SOFT, FILL = "#1f2933", "#7b8794", {
    "pcie": "#dbeafe", "switch": "#e0e7ff", "map": "#ede9fe", "fabric": "#fef3c7", "mac": "#fee2e2",
    "gpu": "#d1fae5", "plain": "#f5f7fa", "manager": "#ffffff",
}


def text(x, y, what, *, size=13, weight="normal", anchor="middle", fill=INK):
    return (f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}" fill="{fill}">{escape(what)}</text>')


def box(x, y, w, h, fill, *lines, bold=True):
    out = [f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{FILL[fill]}" '
           f'stroke="{SOFT}"/>']
    top = y + h / 2 - (len(lines) - 1) * 8 + 4.5
    for n, line in enumerate(lines):
        first = n == 0 and bold
        out.append(text(x + w / 2, top + 16 * n, line, size=13 if first else 11,
                        weight="bold" if first else "normal", fill=INK if first else "#52606d"))
    return "".join(out)


def frame(x, y, w, h, title):
    return (f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="10" fill="none" '
            f'stroke="{INK}" stroke-width="1.5"/>'
            + text(x + 12, y + 20, title, weight="bold", anchor="start", size=14))


def wire(*points, label=None, at=None, both=True, color=INK):
    path = "M" + " L".join(f"{x} {y}" for x, y in points)
    out = (f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.6" '
           f'marker-end="url(#a)"{START if both else ""}/>')
    if label:
        out += text(*at, label, size=11, fill="#52606d")
    return out


def proxy(x, title, first, first_fill, table):
    return "".join([
        frame(x, 40, 270, 300, title),
        box(x + 18, 70, 234, 56, first_fill, *first),
        box(x + 18, 140, 234, 40, "map", table, "bound rows, generations"),
        box(x + 18, 194, 234, 62, "fabric", "Fabric engine",
            "packetizer · depacketizer", "link: sessions, SEQ, ACK"),
        box(x + 18, 274, 110, 48, "mac", "MAC", "path 0, GMII"),
        box(x + 142, 274, 110, 48, "mac", "MAC", "path 1, GMII"),
    ])


def draw():
    """The SVG as text."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        '<title>DXPU: two proxies and an Ethernet make a PCIe switch</title>',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/>'
        '</marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        # Host server
        frame(20, 40, 130, 300, "Host server"),
        box(36, 78, 98, 40, "plain", "CPU", "stock drivers"),
        box(36, 190, 98, 56, "pcie", "Root", "complex", bold=True),
        wire((85, 118), (85, 190)),
        # Proxies
        proxy(230, "Host proxy", ("Virtual PCIe switch", "1 upstream, N downstream ports",
                                  "config space, routing"), "switch", "Host mapping table"),
        proxy(640, "Box proxy", ("Slots", "a TLP queue per slot and class",
                                 "one parser for all"), "switch", "Box mapping table"),
        # GPUs
        frame(950, 40, 90, 300, "GPU box"),
        *(box(964, 72 + 64 * n, 62, 46, "gpu", f"GPU {n + 1}", f"slot {n + 1}") for n in range(4)),
        wire((134, 218), (190, 218), (190, 98), (248, 98), label="raw TLPs", at=(190, 86)),
        wire((892, 98), (964, 98), label="TLPs", at=(932, 90)),
        wire((930, 98), (930, 164), (964, 164), both=False),
        wire((930, 164), (930, 228), (964, 228), both=False),
        wire((930, 228), (930, 292), (964, 292), both=False),
        # Ethernet
        box(330, 404, 480, 32, "plain", "Ethernet path 0: any L2 switches"),
        box(330, 452, 480, 32, "plain", "Ethernet path 1"),
        wire((303, 322), (303, 420), (330, 420)),
        wire((427, 322), (427, 370), (200, 370), (200, 468), (330, 468)),
        wire((713, 322), (713, 404)),
        wire((837, 322), (837, 468), (810, 468)),
        text(550, 390, "DXF v1 frames: several TLPs, each with its CRC-32C", size=11,
             fill="#52606d"),
        box(880, 404, 160, 48, "manager", "Manager", "commands, Redfish"),
        wire((880, 420), (810, 420)),
        "</svg>\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    print(draw(), end="")
