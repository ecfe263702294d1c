"""``dxpu model``: what a workload keeps of its speed behind a proxy, by ``dxpu_performance``."""
