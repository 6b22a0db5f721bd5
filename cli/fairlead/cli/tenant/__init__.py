"""`fairlead tenant create | list | show`: a team's baseline on a cluster.

Enters: flags or a description's file, which become a `Tenant`. Leaves: its objects, printed (`--dry-run`) or applied with the user's own
rights. What the objects are is decided in `fairlead.api.tenant_objects`.
"""
