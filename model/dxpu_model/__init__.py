"""Golden models in plain Python, written from the specifications and independent of the gateware.

TLPs (:mod:`.tlp`), DXF frames (:mod:`.wire`) and their reassembly, CRCs, the virtual switch
(:mod:`.switch`) with its errors and placeholders, the completion tracker, the console. The room
:mod:`.spec` holds the executable specification of the fabric's protocol.
"""
