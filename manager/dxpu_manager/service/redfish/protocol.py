"""Redfish over HTTP: heads, log-in, methods, conditions, and errors.

Ref: DSP0266, 6 "Protocol details", 7 "Service requests", 8 "Service responses"
"""

import base64
import binascii
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...errors import PoolError
from ...pool import WHO
from ..accounts import Session, User
from ..service import Service
from . import (  # noqa: F401 - each fills the table
    chassis, composition, events, fabric, managers, registries, requests, root, systems, tasks,
    users,
)
from .messages import BASE, Refusal, extended, message, of_pool, refusal
from .query import apply, parse
from .table import ROOT, Answer, Ask, call, table

__all__ = ["Redfish"]

_LOG = logging.getLogger("dxpu_manager")

#: Bytes of a request's body, at most.
MAX_BODY = 1 << 20
_JSON = "application/json; charset=utf-8"
#: Addresses that anybody may read (DSP0266, 13.3).
_OPEN = frozenset(("/redfish", ROOT, f"{ROOT}/odata", f"{ROOT}/$metadata"))


class Redfish:
    """An ASGI endpoint for all addresses below ``/redfish``.

    Parameters
    ----------
    service : Service
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        try:
            response = await self._answered(request)
        except Refusal as refused:
            response = _response(refused.status, extended(*refused.messages), refused.headers)
        except PoolError as error:
            wrong = of_pool(error)
            response = _response(wrong.status, extended(*wrong.messages), wrong.headers)
        except Exception:
            _LOG.exception("a fault of the manager itself: %s %s", request.method,
                           request.url.path)
            response = _response(500, extended(message(
                f"{BASE}.InternalError", "the manager has a fault: see its log")))
        response.headers["OData-Version"] = "4.0"
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    def guarded(self, shows: Callable[[Request], Awaitable[Response]],
                ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that shows something to users alone."""
        async def endpoint(request: Request) -> Response:
            try:
                user, _ = await self._who(request, is_open=False)
                if user is None or not user.may("Login"):
                    raise refusal(403, "InsufficientPrivilege",
                                  f"{request.url.path} needs the privilege Login")
            except Refusal as refused:
                return _response(refused.status, extended(*refused.messages), refused.headers)
            return await shows(request)
        return endpoint

    async def _answered(self, request: Request) -> Response:
        path, method = request.url.path, request.method
        if request.headers.get("OData-Version", "4.0") != "4.0":
            raise refusal(412, "HeaderInvalid", "the header OData-Version must be 4.0",
                          "OData-Version", request.headers["OData-Version"])
        methods, names = table.find(path)
        reads = method in ("GET", "HEAD")
        is_open = reads and path.rstrip("/") in _OPEN or (
            method == "POST" and path.rstrip("/") in (f"{ROOT}/SessionService/Sessions",
                                                 f"{ROOT}/SessionService/Sessions/Members"))
        user, session = await self._who(request, is_open=is_open)
        if not methods:
            raise refusal(404, "ResourceMissingAtURI", f"there is nothing at {path}", path)
        allowed = [*methods, "HEAD"] if "GET" in methods else list(methods)
        allow = {"Allow": ", ".join(sorted(allowed))}
        entry = methods.get("GET" if reads else method)
        if entry is None:
            raise refusal(405, "OperationNotAllowed", f"{method} cannot be done at {path}",
                          headers=allow)
        own = session is not None and names.get("session") == session.number or (
            user is not None and names.get("account") == user.name and method == "PATCH")
        if entry.privilege and not (user and user.may(entry.privilege)) and not (
                own and user and user.may("ConfigureSelf")):
            raise refusal(403, "InsufficientPrivilege",
                          f"{method} {path} needs the privilege {entry.privilege}")
        ask = Ask(self.service, path, user or User("", "ReadOnly"), session,
                  query=dict(request.query_params),
                  origin=request.client.host if request.client else "",
                  after=_number(request.headers.get("Last-Event-ID")))
        if reads:
            return await self._read(request, ask, path, names, allow)
        if request.query_params and any(name.startswith("$") for name in request.query_params):
            raise refusal(400, "QueryNotSupportedOnResource",
                          f"{method} takes no query parameters", next(iter(request.query_params)))
        if method in ("PATCH", "POST"):
            ask.body = await _body(request)
        if "GET" in methods and method in ("PATCH", "DELETE"):
            await self._condition(request, ask, path)
        wishes = WHO.set(ask.user.name)
        try:
            said = await call(entry.does, ask, names)
        finally:
            WHO.reset(wishes)
        await self.service.pool.durable()
        if said is None and method == "PATCH":
            said = Answer(200, await self._whole(ask, path))
        elif said is None:
            said = Answer(204)
        elif isinstance(said, dict):
            said = Answer(200, {"@odata.id": path.rstrip("/"), **said})
        headers = {**allow, **said.headers}
        if said.body is not None and "@odata.etag" in said.body:
            headers["ETag"] = said.body["@odata.etag"]
        return _response(said.status, said.body, headers)

    async def _read(self, request: Request, ask: Ask, path: str, names: Mapping[str, str],
                    allow: dict[str, str]) -> Response:
        methods, _ = table.find(path)
        query = parse(ask.query)
        said = await call(methods["GET"].does, ask, names)
        if isinstance(said, Answer):
            if said.headers.get("Content-Type"):
                return Response(content=(said.body or {}).get("text", ""), status_code=said.status,
                                headers={**allow, **said.headers})
            return _response(said.status, said.body, {**allow, **said.headers})
        assert isinstance(said, dict)
        if said.get("stream") is not None:
            response: Response = said["stream"]
            return response
        whole = _marked({"@odata.id": path if path == f"{ROOT}/" else path.rstrip("/") or "/",
                         **said})

        async def read(address: str) -> dict[str, Any]:
            return _marked(await table.read(ask, address))

        body = await apply(query, whole, read)
        headers = {**allow}
        # Of the resource itself: what a query makes of it cannot be the condition of a change.
        if "@odata.etag" in whole:
            headers["ETag"] = whole["@odata.etag"]
            given = request.headers.get("If-None-Match")
            if given is not None and (given.strip() == "*" or whole["@odata.etag"] in [
                    tag.strip() for tag in given.split(",")]):
                return Response(status_code=304, headers=headers)
        kind = str(whole.get("@odata.type", "")).lstrip("#").split(".")[0]
        if kind:
            headers["Link"] = f"<{ROOT}/$metadata#{kind}.{kind}>; rel=describedby"
        return _response(200, body, headers)

    async def _whole(self, ask: Ask, path: str) -> dict[str, Any]:
        return _marked(await table.read(ask, path))

    async def _condition(self, request: Request, ask: Ask, path: str) -> None:
        """Refuse if the resource is not as the user believes."""
        given = request.headers.get("If-Match")
        if given is None or given.strip() == "*":
            return
        now = await self._whole(ask, path)
        if now.get("@odata.etag") not in [tag.strip() for tag in given.split(",")]:
            raise refusal(412, "PreconditionFailed",
                          f"{path} has changed: read it again, and decide anew")

    # Who asks -----------------------------------------------------------------------------------

    async def _who(self, request: Request, *, is_open: bool) -> tuple[User | None, Session | None]:
        accounts = self.service.accounts
        token = request.headers.get("X-Auth-Token")
        if token is not None and not is_open:
            found = accounts.of_token(token)
            if found is None:
                raise _unauthorised(request, "NoValidSession", "this session has ended: log in")
            return found
        given = request.headers.get("Authorization")
        if given is not None and not is_open:
            scheme, _, text = given.partition(" ")
            try:
                name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                name = password = ""
            user = None
            if scheme.lower() == "basic" and name:
                user = await accounts.check(name, password)
            if user is None:
                raise _unauthorised(request, "ResourceAtUriUnauthorized",
                                    "name or password is wrong, or too many log-ins have failed")
            return user, None
        if self.service.trusts(request):
            return User("local", "Administrator"), None
        if is_open:
            return None, None
        raise _unauthorised(request, "NoValidSession", "log in first")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 18 else None


def _unauthorised(request: Request, key: str, said: str) -> Refusal:
    arguments = (request.url.path, said) if key == "ResourceAtUriUnauthorized" else ()
    return refusal(401, key, said, *arguments,
                   headers={"WWW-Authenticate": 'Basic realm="DxPU_MANAGER"'})


def _marked(body: dict[str, Any]) -> dict[str, Any]:
    """The resource with its entity tag."""
    if "@odata.type" not in body or "@odata.etag" in body:
        return body
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return {**body, "@odata.etag": f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'}


def _response(status: int, body: dict[str, Any] | None,
              headers: Mapping[str, str] = {}) -> Response:
    if body is None:
        return Response(status_code=status, headers=dict(headers))
    return Response(json.dumps(body), status, {"Content-Type": _JSON, **headers})


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object in a request; an empty body is an empty object."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY:
            raise refusal(413, "UnrecognizedRequestBody",
                          f"the body has more than {MAX_BODY} bytes")
    kind = request.headers.get("Content-Type", "application/json").split(";")[0].strip().lower()
    if data and kind != "application/json":
        raise refusal(415, "UnrecognizedRequestBody", f"send application/json, not {kind}")

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen = [name for name, _ in pairs]
            twice = next(name for name in seen if seen.count(name) > 1)
            raise refusal(400, "PropertyDuplicate", f"{twice} is there twice", twice)
        return made

    try:
        body = json.loads(bytes(data), object_pairs_hook=whole) if data else {}
    except (ValueError, RecursionError):
        raise refusal(400, "MalformedJSON", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise refusal(400, "UnrecognizedRequestBody", "the body must be a JSON object")
    return body
