"""How Fairlead comes to run on a cluster: manifests are read and applied, programs started as processes.

Enters: manifests, and for each program its command line, from a pod that was applied or from the cluster itself.
Leaves: applied objects, and processes that run `fairlead ARGUMENTS`.
Entrances: `apply.Applier` for objects, `programs.ProgramHost` for processes, `workloads.Workloads` for pods of what was applied.
"""
