"""The one reader of others' bytes: YAML, JSON, gzip, lines and files, each refused before it costs much.

Whoever wrote a manifest, a recording or a kubeconfig may have made it to stop its reader: aliases that expand to gigabytes, nesting, a
thousandfold compression, one endless line, numbers that take minutes to convert, keys with one hash. Every entrance reads through here, and
`tests/test_contracts.py` finds one that does not. A refusal is a `BoundError`, names the limit, and comes before anything large is built.
"""
