"""Addresses of the page, and what a browser may do with it.

Ref: W3C "Content Security Policy Level 3"; RFC 9110, 8.8.3 (ETag)
"""

import hashlib
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

__all__ = ["HEADERS", "page_routes"]

#: Types of the files, by ending.
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript",
          ".svg": "image/svg+xml"}
#: Scripts, styles and data come from the manager alone; nothing is within the text of the page, no
#: text becomes markup, and no other page has this one in a frame.
_POLICY = {
    "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'",
    "connect-src": "'self'", "form-action": "'none'", "base-uri": "'none'",
    "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
}
#: Headers of every file of the page.
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    """Routes to the page at ``/ui``, to which ``/`` leads, and to its files below.

    Everybody may read the files: they have no data of a pool. What the page shows and does are
    requests to ``/redfish`` with the rights of the user.
    """
    there = {found.name: found.read_bytes() for found in files(__package__).iterdir()
             if found.name[found.name.rfind("."):] in _TYPES}
    index = there.pop("index.html")

    async def away(request: Request) -> Response:
        return RedirectResponse("/ui")

    async def page(request: Request) -> Response:
        return _answer(request, "index.html", index)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in there:
            return Response(status_code=404, headers=HEADERS)
        return _answer(request, name, there[name])

    return [Route("/", away), Route("/ui", page), Route("/ui/", away), Route("/ui/{name}", file)]


def _answer(request: Request, name: str, data: bytes) -> Response:
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    headers = {**HEADERS, "ETag": tag}
    if request.headers.get("If-None-Match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=_TYPES[name[name.rfind("."):]])
