"""`fairlead what-if`: what a change of a cluster would do, computed here by the controller's own decision. Writes nothing.

`command.run` is the one entrance: it reads a snapshot (a file, or the cluster with the user's rights), parses the change, and prints.
"""
