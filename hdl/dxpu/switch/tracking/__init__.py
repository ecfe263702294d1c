"""The completion tracker: open requests to slots, and completions in place of lost slots."""
