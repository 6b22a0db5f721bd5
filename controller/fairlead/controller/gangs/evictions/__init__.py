"""Evictions and moves: what marks on pods say, the next step, budgets, and what is remembered of one that is over."""
