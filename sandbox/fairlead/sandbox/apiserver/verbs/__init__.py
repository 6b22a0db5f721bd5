"""GET and LIST, WATCH, POST, PUT and PATCH, DELETE: one module each."""
