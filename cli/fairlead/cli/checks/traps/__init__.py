"""Traps: where another system's controller makes something else of a manifest than its writer expects of pods with devices.

Enters: an object, and the other objects that were given. Leaves: a `Trap` for each field that will not do what it says. Pure. The webhook judges
what the apiserver would; a trap is about what a controller does afterwards, so it refuses nothing on a cluster. One module for each
group of systems; `table.find` is the entrance. Versions of the systems: docs/examples.md.
"""
