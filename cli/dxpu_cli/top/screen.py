"""A look at a node as lines of text for a terminal."""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from dxpu_model.event_log import Event

from .look import Look, RowLook, Times

__all__ = ["draw", "rate", "span"]

#: Heights of a bar.
BARS = "▁▂▃▄▅▆▇█"
BOLD, DIM, RED, YELLOW, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


def rate(number: float) -> str:
    """A rate in five places at most."""
    if number and number < 9.95:
        return f"{number:.1f}"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            scaled = number / (1e3 if sign == "k" else size)
            return f"{scaled:.0f}{sign}" if scaled >= 99.5 else f"{scaled:.1f}{sign}"
    return f"{number:.0f}"


def span(us: float | None) -> str:
    """A time that is given in microseconds."""
    if us is None:
        return "-"
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{1000 * us:.0f} ns"


def _age(seconds: float) -> str:
    """Days, hours, minutes, seconds."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.3g} s"
    days, rest = divmod(whole, 86_400)
    return f"{days} d " * bool(days) + f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def _bars(times: Times) -> str:
    """The bins from the first to the last filled bin."""
    filled = [n for n, count in enumerate(times.bins) if count]
    if not filled:
        return ""
    most = max(times.bins)
    bars = "".join(BARS[-(-7 * count // most)] if count else " "
                   for count in times.bins[filled[0]:filled[-1] + 1])
    begin = times.unit * (1 << filled[0]) if filled[0] else 0.0
    return f"{span(begin) if begin else '0'} {bars} {span(times.unit * (2 << filled[-1]))}"


def _columns(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table; the first ``left`` columns, and the last one, are flush left."""
    table = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    last = len(widths) - 1
    return ["  ".join(cell.ljust(width) if n < left or n == last else cell.rjust(width)
                      for n, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in table]


class _Page:
    """Lines, each cut to the width of the terminal, with a style of its own."""

    def __init__(self, width: int, colours: bool) -> None:
        self.lines: list[str] = []
        self._width, self._colours = width, colours

    def add(self, text: str, style: str = "") -> None:
        """A line."""
        cut = text[:self._width]
        self.lines.append(f"{style}{cut}{PLAIN}" if style and self._colours and cut else cut)

    def table(self, lines: Sequence[str], styles: Sequence[str] = ()) -> None:
        """A table with its heads, after an empty line."""
        self.add("")
        self.add(lines[0], DIM)
        for line, style in zip_longest(lines[1:], styles, fillvalue=""):
            self.add(line, style)


def _bindings(look: Look, host: bool, width: int) -> tuple[list[str], list[str]]:
    """Lines of a table, and a style for each. A narrow table has fewer columns."""
    def waits(one: RowLook) -> str:
        return "wait" if one.row.waits else "requests wait" if one.row.request_waits else ""

    def longest(times: Times) -> str:
        return span(times.longest or None)

    columns: list[tuple[int, str, Callable[[RowLook], str]]] = [
        (1, "SEND", lambda one: span(one.send.mean)),
        (2, "MAX", lambda one: longest(one.send)),
        (1, "RECEIVE", lambda one: span(one.receive.mean)),
        (2, "MAX", lambda one: longest(one.receive)),
        (0, "CREDITS", waits)]
    if host:
        def of_trips(text: Callable[[Times], str]) -> Callable[[RowLook], str]:
            return lambda one: "-" if one.trips is None else text(one.trips)

        columns = [
            (0, "PORT", lambda one: str(one.row.number)),
            (0, "BOX.SLOT", lambda one: f"{one.row.node:#05x}.{one.row.slot}"),
            (0, "REQ/s", lambda one: rate(one.requests or 0.0)),
            (0, "TRIP", of_trips(lambda trips: span(trips.mean))),
            (0, "99% <", of_trips(lambda trips: span(trips.most))),
            (1, "MAX", of_trips(longest)),
            *columns, (0, "ROUND TRIPS", of_trips(_bars))]
    else:
        columns = [(0, "SLOT", lambda one: str(one.row.slot)),
                   (0, "HOST", lambda one: f"{one.row.node:#05x}"),
                   *columns, (0, "SEND", lambda one: _bars(one.send)),
                   (1, "RECEIVE", lambda one: _bars(one.receive))]
    lines: list[str] = []
    for most in (2, 1, 0):
        shown = [column for column in columns if column[0] <= most]
        lines = _columns([head for _, head, _ in shown], [
            [text(one) for *_, text in shown] for one in look.rows], left=2)
        if max(map(len, lines)) <= width:
            break
    return lines, [YELLOW if waits(one) else "" for one in look.rows]


def draw(look: Look, events: Sequence[Event], told: Callable[[Event], str], *, host: bool,
         name: str, width: int, height: int, colours: bool) -> list[str]:
    """Lines of a screen of a size: what does not fit is left out, old events first.

    ``events`` are the last events, oldest first; ``told`` says an event in words.
    """
    page, now, rates = _Page(width, colours), look.now, look.rates
    page.add(f"{'host' if host else 'box'} {now.node:#05x}  {name}  up {_age(look.uptime)}, looked "
             f"at for {span(look.seconds * 1e6)}", BOLD)
    page.add(f"frames  out {rate(rates['fabric_tx_frames'])}/s  in "
             f"{rate(rates['fabric_rx_frames'])}/s     TLPs  out {rate(rates['fabric_tx_tlps'])}/s"
             f"  in {rate(rates['fabric_rx_tlps'])}/s")
    gaps, waits = rates["fabric_link_gap"], rates["fabric_tx_waited"]
    resent = rates["fabric_tx_repeated"]
    page.add(f"loss    resent {rate(resent)}/s ({look.resent:.2%})  gaps {rate(gaps)}/s  naks "
             f"{rate(rates['fabric_link_nak'])}/s  timeouts {rate(rates['fabric_retry_timeout'])}/s"
             f"     credits  waited {rate(waits)}/s",
             RED if look.resent >= 0.01 else YELLOW if resent or gaps else "")
    down = [n for n, up in enumerate(now.links) if not up]
    page.add("links   " + "  ".join(f"{n} {'up' if up else 'down'}"
                                    for n, up in enumerate(now.links)), RED if down else "")
    if look.rows:
        page.table(*_bindings(look, host, width))
    else:
        page.add("")
        page.add("no row is bound", DIM)

    queues = _columns(["QUEUE", "NOW", "MOST", "OF"], [
        (queue, *(str(number) for number in (mark.now, mark.most, mark.room)))
        for queue, mark in now.marks.items()])
    notable = [(counter, rate(often) if often else "", str(total))
               for counter, (often, total) in look.notable.items()]
    counters = _columns(["COUNTER", "/s", "TOTAL"], notable) if notable else []
    gap = max(map(len, queues)) + 4
    room = max(height - len(page.lines) - 2, 0)
    beside = [f"{left:<{gap}}{right}".rstrip() for left, right in zip_longest(
        queues, counters[:max(len(queues), room - 6)], fillvalue="")]
    if room > 2:
        page.table(beside[:room])
    room = height - len(page.lines) - 2
    if room > 0:
        shown = events[-room:]
        lost = f"; {now.lost:,} lost" if now.lost else ""
        frozen = "; frozen" if now.frozen else ""
        page.table([f"EVENTS  {now.recorded:,} noted{lost}{frozen}", *(
            f"{event.time * look.unit:>15,.6f} s  {told(event)}" for event in shown)])
    return page.lines[:height]
