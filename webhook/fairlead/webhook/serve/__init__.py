"""The HTTPS server: bytes of a request in, bytes of an answer out, with limits on everything.

`server` decodes a review, gets its facts, calls the handler and counts; `connection` speaks HTTP/1.1 over one connection;
`sockets` TLS; `room`, `limits`, `metrics`. Entrance: `server.Server`.
"""
