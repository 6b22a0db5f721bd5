"""`fairlead simulate`: replays a placement trace through the engine, or through a published policy to compare with.

Enters: CSV files of nodes, pods and arrivals. Leaves: allocation by arrived load as table, chart or JSON.
Entrance: `command.Simulate`.
"""
