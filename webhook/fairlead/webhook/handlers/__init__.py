"""The verdict on one review: one module per kind of object, and `dispatch`, which picks the handler.

In: a Review and the Facts of the cluster. Out: a Verdict; /mutate answers with a patch, /validate judges the object as it would
be stored. Pure: same review, same facts, same verdict. Entrances: `dispatch.mutate` and `dispatch.validate`.
"""
