"""The manager's page for people: a client of the Redfish interface that runs in a browser."""

from .routes import HEADERS, page_routes

__all__ = ["HEADERS", "page_routes"]
