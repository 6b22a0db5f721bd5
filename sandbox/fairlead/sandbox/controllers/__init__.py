"""kube-controller-manager's loops that matter to claims, Jobs, nodes and namespaces.

Enters: objects from shared informers. Leaves: writes, each loop's under its own service account.
Modules come in pairs: a pure decision (claims, jobs with job_pods, garbage, evictions) and the loop that carries it out.
Entrance: `manager.run(...)`, which runs all of them.
"""
