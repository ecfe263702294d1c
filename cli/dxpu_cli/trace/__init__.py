"""``dxpu trace``: follows one TLP through a capture."""
