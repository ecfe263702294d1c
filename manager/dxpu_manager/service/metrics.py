"""Metrics of a pool, as Prometheus reads them.

Ref: OpenMetrics / Prometheus text format, by prometheus-client
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..lifecycle import State
from ..paths import loads
from ..records import Phase, Progress, Request, Role, Task
from ..store import Event
from .service import Service

__all__ = ["CONTENT_TYPE", "METRICS", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Name, meaning and labels of each metric. Those that end in ``_total`` count since the start of
#: the process.
METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dxpu_gpus": ("GPUs, by state", ("state",)),
    "dxpu_gpu_state": ("1 for the state of a GPU", ("gpu", "state", "host")),
    "dxpu_nodes": ("Hosts and boxes that answer, or do not", ("role", "answers")),
    "dxpu_strangers": ("Nodes that announce themselves, and are not taken in", ()),
    "dxpu_strangers_dropped_total": ("Strangers that were forgotten, as there were too many", ()),
    "dxpu_free_ports": ("Ports of a host without a GPU", ("host",)),
    "dxpu_path_gpus": ("GPUs that a path of a host or a box carries", ("node", "path")),
    "dxpu_path_link": ("1 if a path of a host or a box has a link", ("node", "path")),
    "dxpu_tasks": ("Tasks that have not ended, by job", ("job",)),
    "dxpu_tasks_total": ("Tasks that have ended, by job and end", ("job", "end")),
    "dxpu_requests": ("Requests that have not ended, by phase", ("phase",)),
    "dxpu_oldest_waiting_seconds": ("Time for which the oldest request waits", ()),
    "dxpu_events_total": ("Durable events", ()),
    "dxpu_listeners": ("Open streams of events, subscriptions among them", ()),
    "dxpu_listeners_dropped_total": ("Streams that were too slow", ()),
    "dxpu_deliveries_total": ("Events for subscriptions, by result", ("result",)),
    "dxpu_http_requests_total": ("Requests over HTTP, by status", ("status",)),
    "dxpu_sessions": ("Sessions of users", ()),
    "dxpu_store_trouble": ("1 while the store cannot be written", ()),
    "dxpu_epoch": ("Fencing epoch of the manager", ()),
}


class Metrics:
    """Counts what goes on, and looks at the rest when asked.

    Parameters
    ----------
    service : Service
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        #: Requests over HTTP by status.
        self.answered: Counter[int] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._events = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        service.pool.listeners.append(self._came)

    def _came(self, event: Event) -> None:
        self._events += 1
        record = self.service.pool.records.get(event.key)
        if isinstance(record, Task) and record.progress.ended and event.text == record.text():
            self._ended[str(record.job), str(record.progress)] += 1

    def text(self) -> bytes:
        """All metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics, for the library."""
        for name in METRICS:
            text, labels = METRICS[name]
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, text, labels=labels)
            for values, value in getattr(self, f"_{name.removeprefix('dxpu_')}")():
                family.add_metric([str(v) for v in values], value)
            yield family

    # One method for each metric -----------------------------------------------------------------

    def _gpus(self) -> list[tuple[tuple[str, ...], float]]:
        counts = Counter(gpu.state for gpu in self.service.gpus())
        return [((str(state),), counts[state]) for state in State]

    def _gpu_state(self) -> list[tuple[tuple[str, ...], float]]:
        return [((gpu.name, str(gpu.state), f"{gpu.binding.host:08x}" if gpu.binding else ""), 1)
                for gpu in self.service.gpus() if gpu.state is not State.ABSENT]

    def _nodes(self) -> list[tuple[tuple[str, ...], float]]:
        down = self.service.manager.down
        counts = Counter((str(role), "no" if node.serial in down else "yes")
                         for role in Role for node in self.service.nodes(role))
        return [((str(role), answers), counts[str(role), answers])
                for role in Role for answers in ("yes", "no")]

    def _strangers(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), len(self.service.manager.strangers))]

    def _strangers_dropped_total(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), self.service.manager.dropped)]

    def _free_ports(self) -> list[tuple[tuple[str, ...], float]]:
        bound = Counter(gpu.binding.host for gpu in self.service.gpus() if gpu.binding)
        return [((node.name,), node.rows - bound[node.serial])
                for node in self.service.nodes(Role.HOST)]

    def _path_gpus(self) -> list[tuple[tuple[str, ...], float]]:
        pool = self.service.pool
        return [((node.name, str(path)), carried[path])
                for role in Role for node in self.service.nodes(role)
                for carried in [loads(pool, node)] for path in range(node.paths)]

    def _path_link(self) -> list[tuple[tuple[str, ...], float]]:
        return [((node.name, str(path)), float(not node.dead >> path & 1))
                for role in Role for node in self.service.nodes(role)
                for path in range(node.paths)]

    def _tasks(self) -> list[tuple[tuple[str, ...], float]]:
        jobs = Counter(str(task.job) for task in self.service.pool.all(Task)
                       if task.progress in (Progress.RUNNING, Progress.ROLLING_BACK))
        return [((job,), count) for job, count in sorted(jobs.items())]

    def _tasks_total(self) -> list[tuple[tuple[str, ...], float]]:
        return [(labels, count) for labels, count in sorted(self._ended.items())]

    def _requests(self) -> list[tuple[tuple[str, ...], float]]:
        counts = Counter(request.phase for request in self.service.pool.all(Request))
        return [((str(phase),), counts[phase]) for phase in Phase if phase is not Phase.ENDED]

    def _oldest_waiting_seconds(self) -> list[tuple[tuple[str, ...], float]]:
        now = self.service.pool.clock()
        waits = [now - request.since for request in self.service.pool.all(Request)
                 if request.phase is Phase.WAITING]
        return [((), max(waits, default=0.0))]

    def _events_total(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), self._events)]

    def _listeners(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), len(self.service.hub.listeners))]

    def _listeners_dropped_total(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), self.service.hub.lagged)]

    def _deliveries_total(self) -> list[tuple[tuple[str, ...], float]]:
        webhooks = self.service.webhooks
        return [(("delivered",), webhooks.delivered), (("failed",), webhooks.failed)]

    def _http_requests_total(self) -> list[tuple[tuple[str, ...], float]]:
        return [((str(status),), count) for status, count in sorted(self.answered.items())]

    def _sessions(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), len(self.service.accounts.sessions()))]

    def _store_trouble(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), float(bool(self.service.pool.trouble)))]

    def _epoch(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), self.service.pool.store.epoch)]
