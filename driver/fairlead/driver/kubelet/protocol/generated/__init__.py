"""Made from protos/ by protoc, as the package above says; not edited by hand."""
