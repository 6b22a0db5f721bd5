"""`fairlead import --from SYSTEM`: the queues of another system as Queues, Flavors and TenancyPolicies, with what has no equal.

Enters: parsed objects of Kueue, Volcano, YuniKorn or KAI/Run:ai, from files or a cluster. Leaves: objects of ours that are valid,
and notes; or every fault of the input, and no object. One module per system, pure; `draft` is what they share.
Entrance: `command.Import`.
"""
