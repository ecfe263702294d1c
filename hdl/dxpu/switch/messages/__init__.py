"""Messages of the switch: INTx, MSI, PME handshake, latency tolerance (LTR)."""
