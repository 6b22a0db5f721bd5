"""Ownership of fields: metadata.managedFields, and server-side apply with its conflicts.

Enters: the live object, the new or applied one, the manager. Leaves: the merged object with updated managed fields, or 409.
Entrances: `managed.track` for updates, `managed.apply` for server-side apply.
"""
