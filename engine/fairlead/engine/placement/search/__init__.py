"""A node for every unit of a gang, and devices for its claims; or nothing. `placer` is the entrance."""
