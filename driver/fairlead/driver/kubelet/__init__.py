"""The driver's interface to kubelet: a gRPC service over unix sockets, registration, health stream, self-check.

Enters: calls of kubelet with the names and UIDs of claims. Leaves: for each UID the CDI device names or an error,
within kubelet's deadline. The only package that uses gRPC and the messages of kubelet (`protocol`).
"""
