"""The software host ``dxpu_host`` on a simulated box, over good and bad networks."""
