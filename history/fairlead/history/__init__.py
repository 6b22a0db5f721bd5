"""What happened: the facts of decisions written down, read again, decided again.

`facts` is the serialised form of what a decision starts from; `recording` the files that a leader leaves; `replay` decides
recorded decisions again. Reads and writes files; asks no cluster. The controller records, the command line reads.
"""
