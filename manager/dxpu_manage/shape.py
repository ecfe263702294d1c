"""The register map of a proxy, from three registers."""

from typing import Any

__all__ = ["SHAPE_WORDS", "check_identity", "proxy_of"]

#: Byte addresses of the registers `control.identity`, `control.shape`, `control.security`, which
#: are the same in every proxy.
SHAPE_WORDS = (0x000, 0x004, 0x7F8)


def check_identity(word: int) -> None:
    """Raise :exc:`ValueError` unless the word is the register `control.identity` of a proxy."""
    from dxpu.proxy.registers import IDENTITY
    if word != IDENTITY:
        raise ValueError(f"not a DXPU proxy: its identity is {word:#010x}, not {IDENTITY:#010x}")


def proxy_of(identity: int, shape: int, security: int | None) -> Any:
    """The :class:`dxpu.proxy.HostProxy` or :class:`dxpu.proxy.BoxProxy` of three registers; the
    map is in ``registers``. ``security`` is ``None`` if there is no such register.

    Raises
    ------
    ValueError
        If there is no proxy.
    """
    from dxpu.proxy.box import BoxProxy
    from dxpu.proxy.host import HostProxy
    from dxpu.proxy.registers import control_block
    check_identity(identity)
    make_block: Any = control_block
    block = make_block("box", rows=1, paths=1, peers=1, streams=1, width=64)
    built = block.find("shape").register.unpack(shape)
    options = {}
    if security is not None:
        fields = block.find("security").register.unpack(security)
        options = {name: fields[name] == 1 for name in ("keys", "managed", "observed")}
    common = {"paths": built["paths"] + 1, "peers": built["peers"],
              "streams": 1 << built["streams"], **options}
    make: Any
    make, rows = (HostProxy, "ports") if built["role"] == 1 else (BoxProxy, "slots")
    return make(32 * built["lanes"], **{rows: built["rows"]}, **common)
