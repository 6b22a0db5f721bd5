"""The HTTPS server: bytes of a request in, bytes of an answer out, with limits on everything.

`server` decodes a review, gets its facts, calls the handler and counts; `connection` speaks HTTP/1.1 over one connection;
`request_head` parses a request's head (llhttp); `metrics` and `limits`. Entrance: `server.Server`.
"""
