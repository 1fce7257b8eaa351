"""The service: REST over the library. By noun, not by layer: what belongs to rankings lies in `rankings/`.

`main` puts the application together, `cli` starts its processes; docs/architecture.md draws the floor plan.
"""
