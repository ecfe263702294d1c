"""PCIe endpoint in hardware for the slots of a box: a small GPU with registers, video memory, a
copy engine and interrupts.

docs/reference/endpoint.md describes the endpoint as software sees it.
:class:`~dxpu.endpoint.gpu.SoftGpu` is the endpoint, :class:`~dxpu.endpoint.box.BoxWithGpus` a box
proxy with an endpoint in each slot.
"""
