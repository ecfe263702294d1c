"""Identity of a board, as text for people."""

from dxpu.bringup import Takes
from dxpu.factory import FactoryState, mac_text
from dxpu_cli.options import NO_KEYS
from dxpu_tools.identity import Goal, commit_text

__all__ = ["lines"]


def lines(read, title: str | None) -> list[str]:
    """Identity of a board, as lines of text.

    Parameters
    ----------
    read
        Function from the path of a register to its fields, as a dict.
    title : str or None
        Name of the board; ``None`` for an unknown board, whose own registers are not read.
    """
    shape = read("control.shape")
    role = "host" if shape["role"] == 1 else "box"
    gpus = [(read("board.gpus")["count"], "soft GPU")] if title and role == "box" else []
    rows = [("proxy", f"{role}, {32 * shape['lanes']} bits"),
            ("shape", ", ".join(_count(number, what) for number, what in (
                (shape["rows"], "slot"), *gpus, (shape["paths"] + 1, "path"),
                (shape["peers"], "peer"), (1 << shape["streams"], "stream"))))]
    rows.append(("keys", _keys(read)))
    if title and role == "box" and (alone := read("board.standalone"))["enable"]:
        rows.append(("alone", TAKES.get(alone["takes"], "unknown")))
    if read("control.security")["managed"]:
        rows.append(("managers", "by frames, too, under the key of the factory record"))
    if title:
        made, build = read("board.release"), read("board.build")
        goal = build["goal"]
        options = "unknown" if goal == Goal.UNKNOWN else (
            f"for {Goal(goal).name.lower()}, seed {read('board.seed')['value']}")
        rows += [("version", f"{made['major']}.{made['minor']}.{made['patch']}"),
                 ("commit", commit_text(read("board.commit")["value"], build["dirty"])
                  .removeprefix("commit ")),
                 ("options", options),
                 ("uptime", _time(read("board.uptime")["seconds"])), *_factory(read)]
    return [f"{name:<8} {text}" for name, text in (("board", title or "unknown"), *rows)]


def _keys(read):
    """Whether sessions need keys."""
    state = read("control.security")
    if not state["keys"]:
        return NO_KEYS.removeprefix("keys: ")
    noise = ("the noise source has failed: no session opens until a reset"
             if state["noise_failed"] else "" if state["random"] else "no random words yet")
    clear = ("some peer's sessions are opened in clear, and whoever reaches the fabric can take "
             "them over" if state["clear"] else "sessions need keys")
    return "; ".join(filter(None, (clear, noise)))


#: Text of whom a stand-alone box takes.
TAKES = {takes.value: text for takes, text in {
    Takes.ANYONE: "takes anyone: the first host that it hears, as it has no key",
    Takes.KEY: "takes the first host that proves the key of its factory record",
    Takes.NOBODY: "takes nobody: its factory record is being read, or is damaged"}.items()}
#: Text for each state of the factory record other than valid.
NO_RECORD = {FactoryState.READING: "being read", FactoryState.ABSENT: "no record",
             FactoryState.DAMAGED: "record damaged", FactoryState.VERSION: "record of another "
             "version"}


def _factory(read):
    """MAC address, serial number and key, or the reason for their absence."""
    record = read("board.factory")
    mac = read("board.mac_high")["value"] << 32 | read("board.mac_low")["value"]
    address = mac_text(mac.to_bytes(6, "big"))
    if record["state"] != FactoryState.VALID.value:
        names = {state.value: text for state, text in NO_RECORD.items()}
        return [("factory", names.get(record["state"], "unknown")), ("address", address)]
    serial, key = read("board.serial")["value"], read("board.fingerprint")["value"]
    return [("address", address), ("serial", f"{serial}" if serial else "none"),
            ("key", f"fingerprint {key:08x}" if record["key"] else "none")]


def _count(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def _time(seconds):
    """Days, hours, minutes and seconds."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{_count(days, 'day')}, {clock}" if days else clock
