"""`fairlead demo`: a cluster in a process, the examples on it, and a check of everything that happened.

Enters: examples/, and events of the API. Leaves: a live view or lines, a table, a verdict and an exit code.
`cases` says what each example promises; `history` records what the API showed; e2e judges by the same two.
Entrance: `run.run_demo`.
"""
