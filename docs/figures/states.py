"""What pictures of states have in common."""

from architecture import INK, SOFT, box

__all__ = ["figure", "group", "state"]


def state(x, y, name, fill):
    """A state, with its upper left corner there."""
    return box(x, y, 120, 40, fill, name)


def group(x, y, width, height):
    """A frame around states."""
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="none" '
            f'stroke="{SOFT}" stroke-dasharray="5 4"/>')


def figure(width, height, title, parts):
    """The SVG as text, with an arrow's head for :func:`architecture.wire`."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        f"<title>{title}</title>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/>'
        '</marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>\n"])
