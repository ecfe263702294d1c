"""Sessions with peers: opening and polling, routes, acknowledgements, the link."""
