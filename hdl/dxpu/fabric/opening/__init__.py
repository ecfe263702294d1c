"""Opening of keyed sessions: what an end calculates and compares. ``agent`` runs ``protocol``, in
the instructions of ``program``."""
