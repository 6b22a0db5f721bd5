"""What happened: the facts of decisions written down, read again, decided again; and the ledger of device time with its cost.

`facts` is the serialised form of what a decision starts from; `recording` the files that a leader leaves, and their replay; `ledger` where
each second of each device went; `cost` what that is worth. Asks no cluster. The controller records, the command line reads.
"""
