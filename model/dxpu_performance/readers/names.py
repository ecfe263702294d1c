"""Names of calls and copies in CUDA and HIP, and what they mean."""

import re
from functools import lru_cache

from ..workload import CallKind, Direction

__all__ = ["call_kind", "copy_direction"]

#: The first expression that a name begins with decides. Names of the runtime, the driver and HIP
#: have suffixes such as ``_v7000`` and ``_ptsz``.
_CALLS = tuple((re.compile(f"(?:cuda|cu|hip)(?:{names})"), kind) for names, kind in (
    (r"GraphLaunch", CallKind.GRAPH),
    (r"Launch(?:Kernel|Cooperative|Device|Grid|_v)|Launch$|(?:Ext)?(?:Module)?LaunchKernel"
     r"|ExtModuleLaunch|ModuleLaunch", CallKind.KERNEL),
    (r"(?:Device|Stream|Ctx|Event|Thread)Synchronize", CallKind.SYNCHRONISE),
    (r"StreamWaitEvent", CallKind.WAIT),
    (r"EventRecord", CallKind.EVENT),
    (r"Memset", CallKind.MEMSET),
    (r"Memcpy", CallKind.COPY),
))
#: Words for both ends of a copy. Ref: CUpti_ActivityMemcpyKind; ENUM_CUDA_MEMCPY_OPER of Nsight
#: Systems; Kineto's names of copies
_COPY = re.compile(r"(?i)(host|h|device|d|array|a|peer|p)\s*-?to-?\s*(host|h|device|d|array|a|peer"
                   r"|p)(?![a-z])")


@lru_cache(maxsize=4096)
def call_kind(name: str) -> CallKind:
    """What a call asks of a GPU, by its name such as ``cudaLaunchKernel_v7000``."""
    return next((kind for pattern, kind in _CALLS if pattern.match(name)), CallKind.OTHER)


@lru_cache(maxsize=4096)
def copy_direction(name: str) -> Direction:
    """Direction of a copy, by its name such as ``Memcpy HtoD (Pinned -> Device)``.

    Arrays are memory of the GPU.
    """
    found = _COPY.search(name)
    if not found:
        return Direction.OTHER
    ends = "".join(end[0].lower() for end in found.groups()).replace("a", "d")
    return {"hd": Direction.TO_DEVICE, "dh": Direction.TO_HOST, "dd": Direction.IN_DEVICE,
            "pp": Direction.PEER}.get(ends, Direction.OTHER)
