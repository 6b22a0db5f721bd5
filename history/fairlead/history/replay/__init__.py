"""Recorded decisions decided again, and compared bit by bit."""
