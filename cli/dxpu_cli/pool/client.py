"""A client of a manager, over its Redfish interface."""

import argparse
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dxpu_cli.main import require
from dxpu_tools.errors import Failed, UserError

if TYPE_CHECKING:
    import httpx

__all__ = ["CONFLICT", "Client", "HARDWARE", "NOT_LEADING", "UNREACHED", "WAITS", "add_arguments",
           "blocks", "client", "named"]

#: Exit statuses of commands to a manager, beside 0 (done), 1 (failed) and 2 (wrong use).
WAITS, CONFLICT, NOT_LEADING, UNREACHED, HARDWARE = 3, 4, 5, 6, 7
#: Where a manager listens, unless somebody says otherwise.
DEFAULT = "http://127.0.0.1:7080"
_ROOT = "/redfish/v1"

Body = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every command to a manager."""
    parser.add_argument("--manager", metavar="URL", default=os.environ.get("DXPU_MANAGER", DEFAULT),
                        help="where the manager listens, http://, https:// or unix:PATH, or "
                        "several of these with commas between; $DXPU_MANAGER is another default. "
                        "$DXPU_USER and $DXPU_PASSWORD log in, $DXPU_CA is a file with the "
                        "certificate to be trusted")
    parser.add_argument("--json", action="store_true", help="say it as JSON")


def client(arguments: argparse.Namespace) -> "Client":
    """The client that the options of a command want."""
    require("manager")
    return Client(arguments.manager)


class Client:
    """A client of a manager; every error is one line, with an exit status.

    Parameters
    ----------
    url : str
        Or several with commas between, of managers of which one leads.

    Raises
    ------
    ~dxpu_tools.errors.UserError, ~dxpu_tools.errors.Failed
        From each method.
    """

    def __init__(self, url: str) -> None:
        self.url, self._left = url, url.split(",")
        self._open(self._left.pop(0))

    def _open(self, url: str) -> None:
        import httpx

        transport, base, verify = None, url, True
        if url.startswith("unix:"):
            transport = httpx.HTTPTransport(uds=url.removeprefix("unix:"))
            base = "http://localhost"
        elif not url.startswith(("http://", "https://")):
            raise UserError(f"--manager must begin with http://, https:// or unix:, not {url!r}")
        authority: ssl.SSLContext | bool = verify
        if "DXPU_CA" in os.environ and url.startswith("https:"):
            try:
                authority = ssl.create_default_context(cafile=os.environ["DXPU_CA"])
            except (OSError, ssl.SSLError) as error:
                raise UserError(f"$DXPU_CA: {os.environ['DXPU_CA']!r} is no certificate: "
                                f"{error}") from None
        user, password = os.environ.get("DXPU_USER"), os.environ.get("DXPU_PASSWORD")
        login = (user, password or "") if user else None
        self._http = httpx.Client(base_url=base, transport=transport, verify=authority, auth=login,
                                  timeout=httpx.Timeout(30.0, connect=5.0), trust_env=False)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, body: Body | None = None) -> "httpx.Response":
        import httpx

        try:
            answer = self._http.request(method, path, json=body)
        except httpx.ConnectError as error:
            if "CERTIFICATE" in str(error):
                raise Failed(f"the certificate of the manager at {self.url} is not trusted: give "
                             "its file with $DXPU_CA", UNREACHED) from None
            if self._left:
                self._http.close()
                self._open(self._left.pop(0))
                return self._ask(method, path, body)
            raise Failed(f"no manager listens at {self.url}: start one with `dxpu manager run`, or "
                         "say where with --manager", UNREACHED) from None
        except (httpx.HTTPError, OSError) as error:
            raise Failed(f"the manager at {self.url} does not answer: "
                         f"{str(error) or type(error).__name__}", UNREACHED) from None
        if answer.is_error:
            raise _error(answer)
        return answer

    def get(self, path: str) -> Body:
        """A resource; ``path`` is below the root of the service, or whole."""
        return self._json(self._ask("GET", _full(path)))

    def members(self, path: str) -> list[Body]:
        """All resources of a collection."""
        body = self._json(self._ask("GET", f"{_full(path)}?$expand=."))
        return list(body["Members"])

    def post(self, path: str, body: Body | None = None) -> Body:
        """Make a resource, or do an action; the answer's content."""
        return self._json(self._ask("POST", _full(path), body or {}))

    def patch(self, path: str, body: Body) -> Body:
        """Change a resource."""
        return self._json(self._ask("PATCH", _full(path), body))

    def delete(self, path: str) -> None:
        """Remove a resource."""
        self._ask("DELETE", _full(path))

    def _json(self, answer: "httpx.Response") -> Body:
        if not answer.content:
            return {}
        try:
            body = answer.json()
        except json.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            raise Failed(f"what answers at {self.url} is no manager", UNREACHED)
        return body

    def wait(self, ended: Callable[[], Body | None], seconds: float) -> Body | None:
        """What ``ended`` says at last; ``None`` if it says nothing within a time."""
        due = time.monotonic() + seconds
        pause = 0.05
        while (said := ended()) is None:
            if time.monotonic() >= due:
                return None
            time.sleep(pause)
            pause = min(1.0, 1.5 * pause)
        return said

    def task(self, number: object, seconds: float) -> Body:
        """A task that has ended; a failed one is an error."""
        def ended() -> Body | None:
            task = self.get(f"TaskService/Tasks/{number}")
            return task if "EndTime" in task else None

        task = self.wait(ended, seconds)
        if task is None:
            raise Failed(f"task {number} has not ended within {seconds:g} s, and goes on: see "
                         f"`dxpu task show {number}`", UNREACHED)
        if task["TaskState"] != "Completed":
            raise Failed(f"task {number}: {task['Messages'][0]['Message']}", HARDWARE)
        return task

    def events(self, after: int | None) -> Iterator[Body]:
        """Events as they come, each as a message of Redfish; the iterator goes on after a
        pause of the connection, and ends when the manager does."""
        import httpx

        headers = {"Accept": "text/event-stream"}
        try:
            while True:
                if after is not None:
                    headers["Last-Event-ID"] = str(after)
                with self._http.stream("GET", _full("EventService/SSE"), headers=headers,
                                       timeout=httpx.Timeout(60.0, connect=5.0)) as answer:
                    if answer.is_error:
                        answer.read()
                        raise _error(answer)
                    for line in answer.iter_lines():
                        if line.startswith("data:"):
                            event = json.loads(line.removeprefix("data:"))
                            after = int(event["Id"])
                            yield event
                return
        except httpx.ConnectError:
            raise Failed(f"no manager listens at {self.url}: start one with `dxpu manager run`, or "
                         "say where with --manager", UNREACHED) from None
        except (httpx.HTTPError, OSError) as error:
            raise Failed(f"the stream of events has ended: {str(error) or type(error).__name__}",
                         UNREACHED) from None


def _full(path: str) -> str:
    return path if path.startswith("/") else f"{_ROOT}/{path}"


#: Exit statuses for answers; others are failures.
_STATUSES = {400: 2, 404: 2, 409: CONFLICT, 412: CONFLICT, 503: NOT_LEADING}


def _error(answer: "httpx.Response") -> Exception:
    try:
        said = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        said = f"status {answer.status_code}"
    if answer.status_code == 401:
        return UserError(f"{said} ($DXPU_USER and $DXPU_PASSWORD)")
    status = _STATUSES.get(answer.status_code, 1)
    return UserError(said) if status == 2 else Failed(said, status)


def blocks(gpus: list[str]) -> Body:
    """What an action takes that is about several GPUs."""
    return {"ResourceBlocks": [
        {"@odata.id": f"{_ROOT}/CompositionService/ResourceBlocks/{name}"} for name in gpus]}


def named(there: Client, kind: str, name: str) -> str:
    """Serial number of a host (``Systems``) or box (``Chassis``) by serial number or label."""
    what = {"Systems": "host", "Chassis": "box"}[kind]
    for one in there.members(kind):
        if name in (one["Id"], one["Name"]):
            return str(one["Id"])
    raise UserError(f"there is no {what} {name!r}; `dxpu {what} list` shows all")
