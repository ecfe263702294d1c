"""An endpoint in hardware for the slots of a box: a small GPU (docs/endpoint.md)."""
