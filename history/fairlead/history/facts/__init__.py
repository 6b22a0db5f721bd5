"""The facts of a decision as JSON: what `decide` starts from, in a format of its own that outlives changes of the engine.

Entrances: `snapshot_file.dump` and `load` for one snapshot; `read.State` for facts that change, `write` for what they are made from.
"""
