"""Fairlead: GPUs of a shared Kubernetes cluster, given to whole jobs, fairly.

The rooms, from the ground up: `api` (what users write), `kube` (talking to Kubernetes), `cel` (device
selectors), the three programs `driver`, `webhook` and `controller`, `sandbox` (a cluster in a process)
and `cli`. Dependencies run downwards only.
"""

__version__ = "0.1.0"
