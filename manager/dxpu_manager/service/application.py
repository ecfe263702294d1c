"""The manager's interface over HTTP."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import CONTENT_TYPE, Metrics
from .page import page_routes
from .redfish import Redfish
from .redfish.events import wanted
from .service import Service

__all__ = ["make_application"]

_METHODS = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE"]


def make_application(service: Service) -> ASGIApp:
    """The interface of a manager.

    ``/redfish``: Redfish. ``/ui``: the page. ``/metrics``: metrics. ``/healthz``: the process
    lives. ``/readyz``: it can fulfil wishes.
    """
    metrics = Metrics(service)
    redfish = Redfish(service)
    service.webhooks.content = wanted

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        health = service.health()
        return JSONResponse(health, 200 if health["ready"] else 503)

    async def show_metrics(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    routes = [
        Route("/healthz", healthz), Route("/readyz", readyz),
        Route("/metrics", redfish.guarded(show_metrics)),
        Route("/redfish", redfish.__call__, methods=_METHODS),
        Route("/redfish/{rest:path}", redfish.__call__, methods=_METHODS),
        *page_routes(),
    ]
    application = Starlette(routes=routes)
    application.router.redirect_slashes = False
    return _Counts(application, metrics)


class _Counts:
    """Counts answers by status."""

    def __init__(self, application: ASGIApp, metrics: Metrics) -> None:
        self._application, self._metrics = application, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered[message["status"]] += 1
            await send(message)

        await self._application(scope, receive, counted if scope["type"] == "http" else send)
