"""``dxpu faults``: the fabric over an Ethernet that loses, doubles, delays and changes frames.

:mod:`.cases` lists the cases; :mod:`.fault_design` and :mod:`.incast_design` are the designs, with
traffic and checks in hardware; :mod:`.score` and :mod:`.incast` judge the counts; :mod:`.intruder`
makes hostile frames.
"""
