"""What a placement costs future requests, measured against the usual ones (`fragmentation`), and the order of devices (`preference`)."""
