"""Subresources that are more than a part of their object (binding, eviction, scale, …), and reviews, which are not stored.

Enters: a request on one. Leaves: its answer, and the writes that it implies. Entrance: `handlers.SUBRESOURCES`.
"""
