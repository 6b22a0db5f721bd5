"""A Kubernetes 1.36 apiserver in one asyncio process, for programs, kubectl and tests; README.md maps its files.

Enters: HTTP requests with bearer tokens. Leaves: the API's answers and watches, word for word where clients read them.
The generic half (requests, store, watches, patches) contains no kind; kinds/ and admission/ contain no HTTP.
Entrance: `server.ApiServer`; `server.faults` injects errors.
"""
