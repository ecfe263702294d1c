"""The wire format DXF v1: numbers, fields, frame types, header check, bodies of control frames."""
