"""A Kubernetes cluster in one process, with Fairlead installed on it: for the demo, e2e and fault tests.

Enters: nodes with profiles of simulated GPUs, and manifests. Leaves: an apiserver over HTTPS that answers as
Kubernetes 1.36 does, and what happened on the nodes. Real are Fairlead's three programs; apiserver, control loops,
scheduler and kubelets stand for Kubernetes' own, and containers run nothing. docs/sandbox.md lists what is left out.
Entrance: `cluster.Cluster(ClusterOptions(...))`; `installation.installed(...)` runs Fairlead from what was installed.
"""
