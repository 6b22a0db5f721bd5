"""Who asks for a page, and what that user may see: logins, sessions, headers of a proxy, and the cluster's own answers about rights.

In: a request. Out: a Viewer, or LoginNeeded with the reason. Entrances: `tokens.TokenViewers`, `proxy.ProxyViewers`.
"""
