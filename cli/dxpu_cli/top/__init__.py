"""What ``dxpu top`` shows of a single node."""
