"""Transaction layer packets: encodings, parser, ingress checks, completions."""
