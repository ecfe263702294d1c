"""A fabric between host and GPU: round trip, tags, lines, and the bandwidths."""

from dataclasses import dataclass, field, replace

import numpy as np

from . import published
from .bandwidth import Cable, PCIeLink, aggregate_gb_s, read_gb_s, write_gb_s
from .calibration import calibrated
from .errors import ModelError, not_negative, positive, share, whole
from .measured import Measured

__all__ = ["FRAMES_OF_A_READ", "US_PER_KM", "Fabric"]

#: Light in glass, one way.
US_PER_KM = 5.0
#: Frames in the two ways of a read, each of which may be lost.
FRAMES_OF_A_READ = 2


@dataclass(frozen=True)
class Fabric:
    """The way between a host and a GPU.

    Parameters
    ----------
    round_trip_us : float
        Round trip of a read of 4 bytes of the GPU on an idle fabric, without the distance below.
    native_round_trip_us : float
        The same for a GPU in the host.
    conversion_us : float
        Part of the round trip for the conversion of packets by proxies.
    cable : Cable
        Lines between the proxies.
    link : PCIeLink
        Links of host and GPU.
    tags, read_bytes : int
        Reads of a GPU under way at once, and bytes of each.
    payload_bytes : int
        Data of a write of a GPU.
    proxy_gb_s : float, optional
        Bandwidth of a proxy to all GPUs together; None: that of the cable.
    completions_gb_s : float, optional
        Data of completions that a proxy takes at most; None: as much as a line carries.
    proxies : int
        Proxies sharing the GPUs of the host evenly.
    distance_km : float
        Length of the cable.
    loss : float
        Share of lost frames, 0 to less than 1.
    repeat_us : float
        Time until a lost frame has been repeated.
    written : bool
        Whether copies to the GPU are writes of the CPU (section 5.1), not reads of the GPU.
    source : str
        Where the figures come from, in words.
    """

    round_trip_us: float
    cable: Cable
    conversion_us: float = 0.0
    native_round_trip_us: float = published.NATIVE_ROUND_TRIP_US
    link: PCIeLink = field(default_factory=PCIeLink)
    tags: int = published.TAGS
    read_bytes: int = published.READ_BYTES
    payload_bytes: int = 128
    proxy_gb_s: float | None = None
    completions_gb_s: float | None = None
    proxies: int = 1
    distance_km: float = 0.0
    loss: float = 0.0
    repeat_us: float = 0.0
    written: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        positive("the round trip", self.round_trip_us)
        positive("the native round trip", self.native_round_trip_us)
        if self.round_trip_us < self.native_round_trip_us:
            raise ModelError(f"the round trip of {self.round_trip_us:g} us is shorter than that of "
                             f"a GPU in the host, {self.native_round_trip_us:g} us")
        whole("tags", self.tags, 1, 1 << 20)
        whole("read_bytes", self.read_bytes, 1, 4096)
        whole("payload_bytes", self.payload_bytes, 1, 4096)
        if self.proxy_gb_s is not None:
            positive("proxy_gb_s", self.proxy_gb_s)
        if self.completions_gb_s is not None:
            positive("completions_gb_s", self.completions_gb_s)
        whole("proxies", self.proxies, 1, 1024)
        not_negative("conversion_us", self.conversion_us)
        not_negative("distance_km", self.distance_km)
        not_negative("repeat_us", self.repeat_us)
        if share("loss", self.loss) == 1:
            raise ModelError("loss must be below 1: nothing would arrive")

    @classmethod
    def of_paper(cls, round_trip_us: float = published.ROUND_TRIPS_US[1]) -> "Fabric":
        """The paper's fabric: 140 tags of 128 B, a line of 100 Gb/s for a GPU; the capacity
        of a proxy, from table 12, is more than that of a line."""
        fit = calibrated()
        return cls(round_trip_us, Cable(fit.cable_overhead_bytes), published.CONVERSION_US,
                   proxy_gb_s=fit.proxy_capacity_gb_s, source="the paper")

    @classmethod
    def of_measured(cls, measured: Measured, rate: str, load: float = 0.0) -> "Fabric":
        """The fabric measured on the gateware at a rate of the line.

        ``load`` is the share of the line for other traffic; the median round trip is interpolated
        between measured loads.

        Raises
        ------
        ModelError
            The file has no such rate, or no load as high.
        """
        if rate not in measured.rates:
            raise ModelError(f"there are no figures of {rate}; there are: "
                             f"{', '.join(measured.rates)}")
        found = measured.rates[rate]
        lossy = [(point.p99_ns - found.round_trip.p50_ns) / 1000 for point in found.loss
                 if point.loss > 0]
        trips = {0.0: found.round_trip.p50_ns} | {
            point.load: point.p50_ns for point in sorted(found.load, key=lambda each: each.load)}
        highest = max(trips)
        if not 0 <= load <= highest:
            raise ModelError(f"load must be from 0 to {highest:g}, the highest that was measured "
                             f"at {rate}, not {load:g}")
        trip = float(np.interp(load, list(trips), list(trips.values())))
        return cls(trip / 1000,
                   Cable(found.overhead_bytes, found.line_gbit_s),
                   found.split.conversion_ns / 1000, found.split.native_ns / 1000,
                   PCIeLink(), found.tags, found.read_bytes, found.max_payload_bytes,
                   completions_gb_s=min((point.limit_gb_s for point in found.trips), default=None),
                   repeat_us=max(0.0, *lossy) if lossy else 0.0,
                   source=f"gateware, {rate}" + f", load {load:g}" * (load > 0))

    @property
    def far_round_trip_us(self) -> float:
        """Mean round trip, with distance and with repetitions of lost frames."""
        lost = FRAMES_OF_A_READ * self.loss / (1 - self.loss) * self.repeat_us
        return self.round_trip_us + 2 * US_PER_KM * self.distance_km + lost

    @property
    def delay_us(self) -> float:
        """Time added to a round trip by the fabric."""
        return self.far_round_trip_us - self.native_round_trip_us

    @property
    def native_to_gpu_gb_s(self) -> float:
        """Copies to a GPU in the host."""
        return read_gb_s(self.tags, self.read_bytes, self.native_round_trip_us, self.link)

    @property
    def native_to_host_gb_s(self) -> float:
        """Copies from a GPU in the host."""
        return write_gb_s(self.link, self.payload_bytes)

    def to_gpu_gb_s(self, gpus: int = 1) -> float:
        """Copies to each of some GPUs at once."""
        if self.written:
            one = write_gb_s(self.link, 64, self.cable)
        else:
            one = read_gb_s(self.tags, self.read_bytes, self.far_round_trip_us, self.link,
                            self.cable)
            one = min(one, self.completions_gb_s or one)
        return self._of_each(one, self.proxy_gb_s or self.cable.gb_s(64), gpus)

    def to_host_gb_s(self, gpus: int = 1) -> float:
        """Copies from each of some GPUs at once."""
        one = write_gb_s(self.link, self.payload_bytes, self.cable)
        return self._of_each(one, self.proxy_gb_s or self.cable.gb_s(self.payload_bytes), gpus)

    def _of_each(self, one: float, capacity: float, gpus: int) -> float:
        """Bandwidth of each of the GPUs sharing a proxy."""
        together = -(-gpus // self.proxies)
        if together == 1:
            return one
        return min(one, aggregate_gb_s(together, one, capacity) / together)

    def at(self, round_trip_us: float) -> "Fabric":
        """The same fabric with another round trip, without distance and loss."""
        return replace(self, round_trip_us=round_trip_us, distance_km=0.0, loss=0.0)
