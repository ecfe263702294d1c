"""The fabric: TLPs to Ethernet frames and back, with sessions, retransmission and credits.

:class:`~dxpu.fabric.engine.FabricEngine` joins the rooms: :mod:`.wire`, :mod:`.arq`,
:mod:`.credit`, :mod:`.send`, :mod:`.receive`, :mod:`.session`. Each room imports only rooms listed
before it.
"""
