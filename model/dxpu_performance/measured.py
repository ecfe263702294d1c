"""Figures measured on the gateware, as a file: the input of the performance model.

``dxpu bench paper --out rtl.json`` writes the file. All times are in nanoseconds, all rates of data
in 10^9 bytes a second (``gb_s``), rates of a line in 10^9 bits a second (``gbit_s``), shares from 0
to 1. Tables, figures and equations are those of He et al. (:mod:`dxpu_performance`).
"""

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

__all__ = ["RATES", "STORED", "VERSION", "Assumption", "Bandwidth", "FileError", "LoadPoint",
           "LossPoint", "Measured", "PeerToPeer", "Rate", "RoundTrip", "Scaling", "Split",
           "TripPoint", "bins", "read", "write"]

#: Version of the file's layout.
VERSION = 1
#: Names of the rates, the fastest first.
RATES = ("100G", "10G", "1G")
#: The file that comes with the package.
STORED = Path(__file__).with_name("data") / "rtl.json"


class FileError(ValueError):
    """A file was not written by :func:`write`; the text is one line, with the place."""


@dataclass(frozen=True)
class RoundTrip:
    """Time of a read of the GPU, from the first beat of the request until the last one of the
    completion, at the source's side of PCIe, on an idle fabric.

    ``histogram`` has pairs: an upper bound in ns, and a number of reads, above the bound before and
    up to the upper bound. Bounds rise.
    """

    p50_ns: float
    p99_ns: float
    longest_ns: float
    histogram: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Split:
    """Parts of a round trip on an idle fabric (Table 6); the round trip is their sum.

    ``native_ns`` is the same read without DxPU: PCIe links and memory, a model. ``network_ns`` are
    wire, MACs, FEC and Ethernet switch, a model, with frames' times on the line. ``conversion_ns``
    are the four traversals of proxies, measured.
    """

    native_ns: float
    network_ns: float
    conversion_ns: float


@dataclass(frozen=True)
class Bandwidth:
    """Payload in one direction, and the native payload: of the same source on the modelled PCIe
    link alone (Table 7)."""

    measured_gb_s: float
    native_gb_s: float

    @property
    def share(self) -> float:
        """Share of the native bandwidth."""
        return self.measured_gb_s / self.native_gb_s


@dataclass(frozen=True)
class PeerToPeer:
    """Payload of writes from GPU to GPU: both under one proxy, and across two proxies (Figure
    7)."""

    one_proxy_gb_s: float
    two_proxies_gb_s: float

    @property
    def share(self) -> float:
        """Bandwidth across two proxies, as a share of the bandwidth under one."""
        return self.two_proxies_gb_s / self.one_proxy_gb_s


@dataclass(frozen=True)
class TripPoint:
    """Host-to-GPU bandwidth at the round trip of some network.

    ``equation_gb_s`` is tags times read size, divided by the round trip (Eq. 1); ``limit_gb_s`` is
    the limit of line and ports; the smaller of both is the prediction.
    """

    round_trip_ns: float
    equation_gb_s: float
    limit_gb_s: float
    measured_gb_s: float

    @property
    def predicted_gb_s(self) -> float:
        """The smaller of Eq. 1 and the limit."""
        return min(self.equation_gb_s, self.limit_gb_s)

    @property
    def error(self) -> float:
        """Prediction without the measured bandwidth, as a share of the measured bandwidth."""
        return self.predicted_gb_s / self.measured_gb_s - 1


@dataclass(frozen=True)
class Scaling:
    """Host-to-GPU bandwidth of all of some GPUs together, spread evenly over some proxies (Table
    12)."""

    gpus: int
    proxies: int
    measured_gb_s: float


@dataclass(frozen=True)
class LoadPoint:
    """Round trips of reads while other traffic fills a share of the line."""

    load: float
    p50_ns: float
    p99_ns: float


@dataclass(frozen=True)
class LossPoint:
    """Round trips of reads, and host-to-GPU bandwidth, while a share of the frames is lost."""

    loss: float
    p50_ns: float
    p99_ns: float
    goodput_gb_s: float


@dataclass(frozen=True)
class Rate:
    """All measurements at one rate of the line.

    ``clock_hz`` and ``width_bits`` are those of the proxies' cores; ``line_gbit_s`` is the rate of
    the Ethernet. The traffic source has ``tags`` reads of ``read_bytes`` under way and writes
    ``max_payload_bytes``. A TLP of this size takes ``overhead_bytes`` on a full line beside the
    payload. Without a second proxy ``gpu_to_gpu`` is None.
    """

    clock_hz: float
    width_bits: int
    line_gbit_s: float
    tags: int
    read_bytes: int
    max_payload_bytes: int
    overhead_bytes: float
    round_trip: RoundTrip
    split: Split
    host_to_gpu: Bandwidth
    gpu_to_host: Bandwidth
    gpu_to_gpu: PeerToPeer | None
    trips: tuple[TripPoint, ...]
    scaling: tuple[Scaling, ...]
    load: tuple[LoadPoint, ...]
    loss: tuple[LossPoint, ...]


@dataclass(frozen=True)
class Assumption:
    """A part of the bench is a model: name, value, and source of the value."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Measured:
    """The whole file: a :class:`Rate` for some or all names of :data:`RATES`, and assumptions.

    ``command`` has made the file.
    """

    command: str
    rates: dict[str, Rate]
    assumptions: tuple[Assumption, ...]


def bins(times_ns: list[float], ratio: float = 2 ** 0.25) -> tuple[tuple[float, int], ...]:
    """Histogram of some times. Each bound is ``ratio`` times the bound before, rounded to a whole
    nanosecond; bins at both ends are not empty."""
    if not times_ns:
        return ()
    bound, found = max(1, math.floor(min(times_ns))), list[tuple[float, int]]()
    rest = sorted(times_ns)
    while rest:
        count = sum(time <= bound for time in rest)
        if count or found:
            found.append((float(bound), count))
        rest = rest[count:]
        bound = max(bound + 1, round(bound * ratio))
    return tuple(found)


def write(path: Path | str, measured: Measured) -> None:
    """Write a file for :func:`read`, whole or not at all.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    path = Path(path)
    text = json.dumps({"version": VERSION} | dataclasses.asdict(measured), indent=1) + "\n"
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-",
                                     delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def read(path: Path | str = STORED) -> Measured:
    """The figures of a file, by default of :data:`STORED`.

    Raises
    ------
    FileError
        There is no such file, or a key is missing, unknown, of another kind, negative, or of
        another version.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise FileError(f"{path}: no JSON") from None
    if not isinstance(found, dict) or "version" not in found:
        raise FileError(f"{path}: version is missing")
    if found.pop("version") != VERSION:
        raise FileError(f"{path}: version must be {VERSION}: write the file anew by "
                        "`dxpu bench paper --out`")
    try:
        measured: Measured = _value(Measured, found, "")
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    unknown = measured.rates.keys() - set(RATES)
    if unknown or not measured.rates:
        raise FileError(f"{path}: rates must be of {', '.join(RATES)}, not {sorted(unknown)}")
    return measured


#: Numbers that must not be 0, as others are divided by them.
_POSITIVE = {"clock_hz", "width_bits", "line_gbit_s", "tags", "read_bytes", "max_payload_bytes",
             "p50_ns", "p99_ns", "longest_ns", "native_ns", "conversion_ns", "round_trip_ns",
             "measured_gb_s", "native_gb_s", "one_proxy_gb_s", "two_proxies_gb_s",
             "equation_gb_s", "limit_gb_s", "gpus", "proxies"}
_SHARES = {"load", "loss"}


def _value(kind: Any, found: Any, at: str) -> Any:
    """``found``, of the place ``at`` in the file, as a value of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _fields(kind, found, at)
    if type(None) in inner:
        return None if found is None else _value(inner[0], found, at)
    if origin is dict:
        return {key: _value(inner[1], each, f"{at}.{key}")
                for key, each in _map(found, at).items()}
    if origin is tuple:
        if not isinstance(found, list):
            raise FileError(f"{at} must be a list")
        if inner[-1] is Ellipsis:
            return tuple(_value(inner[0], each, f"{at}[{n}]") for n, each in enumerate(found))
        if len(found) != len(inner):
            raise FileError(f"{at} must have {len(inner)} items")
        return tuple(_value(each, item, f"{at}[{n}]")
                     for n, (each, item) in enumerate(zip(inner, found, strict=True)))
    if kind is str:
        if not isinstance(found, str):
            raise FileError(f"{at} must be a text, not {found!r}")
        return found
    return _number(kind, found, at)


def _map(found: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise FileError(f"{at or 'the file'} must be an object")
    return found


def _fields(kind: Any, found: Any, at: str) -> Any:
    hints, dot = get_type_hints(kind), f"{at}." if at else ""
    for key in hints.keys() - _map(found, at).keys():
        raise FileError(f"{dot}{key} is missing")
    for key in _map(found, at).keys() - hints.keys():
        raise FileError(f"{dot}{key} is unknown")
    return kind(**{key: _value(hint, found[key], dot + key) for key, hint in hints.items()})


def _number(kind: Any, found: Any, at: str) -> float:
    name = at.rpartition(".")[2]
    if isinstance(found, bool) or not isinstance(found, (int, float) if kind is float else int):
        raise FileError(f"{at} must be a {'number' if kind is float else 'whole number'}, not "
                        f"{found!r}")
    if not math.isfinite(found) or found < 0:
        raise FileError(f"{at} must be 0 or more, not {found!r}")
    if name in _POSITIVE and not found:
        raise FileError(f"{at} must be more than 0")
    if name in _SHARES and found > 1:
        raise FileError(f"{at} must be at most 1, not {found!r}")
    return float(found) if kind is float else found
