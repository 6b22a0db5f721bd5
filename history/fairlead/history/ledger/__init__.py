"""The ledger: where each second of each device went, kept as intervals that never overlap and leave no gap.

`entries` has the values, `account` makes them of what the leader sees, `store` keeps them (SQLite or PostgreSQL).
"""
