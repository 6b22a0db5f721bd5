"""Replay of a placement trace through the controller's own placement, beside published policies."""
