"""The stock kube-scheduler as far as it meets Fairlead: gates, node filters, Dynamic Resource Allocation, binding.

Enters: pods, nodes, claims, slices and device classes, from the API. Leaves: claim allocations and reservations, bindings,
PodScheduled conditions, events. Entrance: `loop.Scheduler(...).run()`; the decision is `cycle.decide`, a pure function.
Does not do: preemption, inter-pod affinity, topology spread, host ports, volumes, binding conditions, shared devices.
"""
