"""The facts that a decision can be checked against: one document, and how its objects are to be read by the API's rules.

`document` is the form (a file's, or read from a cluster); `published` reads slices and requests, `node_fit` nodes and pods,
`holdings` what is taken, `units` gangs, `queue_tree` Queues, `device_usage` how busy allocated devices are.
Judges nothing, evaluates no CEL. The engine has readers of its own, and uses none of these but the form: so they can check it.
"""
