"""PATCH in its four forms: JSON patch, merge patch, strategic merge patch, server-side apply.

Enters: a patch and the stored object. Leaves: the patched object, which is then written as an update.
The algorithms are pure; the entrance is `patching.patch`.
"""
