"""Recorded decisions decided again: `verify` compares bit by bit, `counterfactual` lives a recorded day under another policy."""
