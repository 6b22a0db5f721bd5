"""What queues have spent of their budgets: `source` says where the sums come from, `held` counts since the last, `budgets` puts both
together for the engine and for Queue status.
"""
