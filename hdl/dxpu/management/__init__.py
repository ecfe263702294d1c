"""Management of a proxy by frames: MGMT."""
