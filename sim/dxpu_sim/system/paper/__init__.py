"""The bench behind ``dxpu bench paper``: GPUs that read and write a host's memory at full rate."""
