"""Hot-plug of the downstream ports: slot events, link speed, placeholders, wake-up."""
