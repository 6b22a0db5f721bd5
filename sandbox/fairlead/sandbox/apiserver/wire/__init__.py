"""Connections, requests and answers as bytes: TLS, one exchange, encodings of bodies, and the form that a client asks for."""
