"""The facts of a decision as JSON: what `decide` starts from, in a format of its own that outlives changes of the engine.

Entrances: `snapshot_file.dump` and `load` for one snapshot; `state.State` for facts that change, `changes.Watcher` for what they are made from.
"""
