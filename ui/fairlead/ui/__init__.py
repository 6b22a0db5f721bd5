"""What people see of a cluster: models of its objects, which the command line prints and the pages show; pages; their server."""
