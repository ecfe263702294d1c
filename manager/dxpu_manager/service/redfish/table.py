"""Addresses of the service, and what is behind each."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.routing import compile_path

from ...records import Node, Record, Role
from ..accounts import Session, User
from .messages import refusal

if TYPE_CHECKING:
    from ..service import Service

__all__ = ["Answer", "Ask", "ROOT", "Table", "collection", "link", "table"]

#: Root of the service.
ROOT = "/redfish/v1"

Body = dict[str, Any]
R = TypeVar("R", bound=Record)


@dataclass
class Ask:
    """A request that may be made."""

    service: "Service"
    path: str
    user: User
    session: Session | None = None
    body: Body = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    #: Number of the last event that the user has, of a stream.
    after: int | None = None

    def record(self, kind: type[R], name: str, what: str) -> R:
        """A record that is the resource at an address; raises :exc:`Refusal` if there is none.

        ``what`` the resource is called is for people.
        """
        found = self.service.pool.records.get(f"{kind.KIND}/{name}")
        if not isinstance(found, kind):
            raise self.missing(f"{what} {name}")
        return found

    def node(self, role: Role, name: str) -> Node:
        """A host or a box that is the resource at an address; raises as :meth:`record`."""
        found = self.record(Node, name, role)
        if found.role is not role:
            raise self.missing(f"{role} {name}")
        return found

    def missing(self, what: str) -> Exception:
        """That there is no such resource."""
        return refusal(404, "ResourceMissingAtURI", f"there is no {what}", self.path)

    def partly(self, wrong: list[Body], shown: Body) -> "Answer | None":
        """The answer to a change that left something out: the resource as it is, and why."""
        if not wrong:
            return None
        return Answer(200, {"@odata.id": self.path.rstrip("/"), **shown,
                            "@Message.ExtendedInfo": wrong})


@dataclass
class Answer:
    """An answer other than a resource with status 200."""

    status: int = 200
    body: Body | None = None
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[..., Any]
_H = TypeVar("_H", bound=Handler)


@dataclass(frozen=True)
class _Entry:
    does: Handler
    privilege: str


class Table:
    """Addresses with methods; each method has a privilege that is needed."""

    def __init__(self) -> None:
        self._paths: dict[str, dict[str, _Entry]] = {}
        self._compiled: list[tuple[Any, Any, str]] = []
        self._fixed: dict[str, str] = {}

    def _add(self, method: str, path: str, privilege: str) -> Callable[[_H], _H]:
        def keep(does: _H) -> _H:
            if path not in self._paths:
                if "{" in path:
                    regex, _, convertors = compile_path(path)
                    self._compiled.append((regex, convertors, path))
                self._fixed.setdefault(path, path)
                self._paths.setdefault(path, {})
            self._paths[path][method] = _Entry(does, privilege)
            return does
        return keep

    def get(self, path: str, privilege: str = "Login") -> Callable[[_H], _H]:
        """Say what is at an address. The empty privilege: anybody may ask."""
        return self._add("GET", path, privilege)

    def patch(self, path: str, privilege: str = "ConfigureComponents",
              ) -> Callable[[_H], _H]:
        """Change properties."""
        return self._add("PATCH", path, privilege)

    def post(self, path: str, privilege: str = "ConfigureComponents",
             ) -> Callable[[_H], _H]:
        """Make a member of a collection, or do an action."""
        return self._add("POST", path, privilege)

    def delete(self, path: str, privilege: str = "ConfigureComponents",
               ) -> Callable[[_H], _H]:
        """Remove a resource."""
        return self._add("DELETE", path, privilege)

    def find(self, path: str) -> tuple[dict[str, _Entry], dict[str, str]]:
        """Methods of an address, and names in the address; no methods: there is none."""
        path = path.rstrip("/") or "/"
        if path in self._fixed and "{" not in path:
            return self._paths[path], {}
        for regex, convertors, template in self._compiled:
            match = regex.match(path)
            if match:
                return self._paths[template], {
                    key: convertors[key].convert(value)
                    for key, value in match.groupdict().items()}
        return {}, {}

    def paths(self) -> list[tuple[str, tuple[str, ...]]]:
        """Templates of all addresses, with methods."""
        return [(path, tuple(methods)) for path, methods in sorted(self._paths.items())]

    async def read(self, ask: Ask, path: str) -> Body:
        """The resource at an address, as for a request of the same user."""
        methods, names = self.find(path)
        if "GET" not in methods:
            raise refusal(404, "ResourceMissingAtURI", f"there is nothing at {path}", path)
        said = await call(methods["GET"].does, ask, names)
        assert isinstance(said, dict)
        return {"@odata.id": path.rstrip("/") if path != f"{ROOT}/" else path, **said}


async def call(does: Handler, ask: Ask, names: Mapping[str, str]) -> Body | Answer | None:
    """Call a handler, that of an address with names in it."""
    said = does(ask, **names)
    if inspect.isawaitable(said):
        said = await said
    assert said is None or isinstance(said, (dict, Answer))
    return said


#: All addresses; the modules of resources fill the table.
table = Table()


def link(*parts: object) -> dict[str, str]:
    """A link to an address below the root."""
    return {"@odata.id": "/".join((ROOT, *(str(part) for part in parts)))}


def collection(kind: str, name: str, members: list[dict[str, str]], **more: Any) -> Body:
    """A collection of links."""
    return {"@odata.type": f"#{kind}Collection.{kind}Collection", "Name": name,
            "Members@odata.count": len(members), "Members": members, **more}
