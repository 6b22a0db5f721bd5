"""The MPS control daemons of claims: processes on this node, one per claim, that outlive the driver.

Enters: a claim's UID, the UUIDs of its devices, the limits of its clients. Leaves: a running daemon, and the mounts
through which a container reaches it. Of a claim it has the UID alone. `daemons.Daemons` is the entrance.
"""
