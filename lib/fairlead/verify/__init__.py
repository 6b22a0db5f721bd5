"""Checks a certificate that a gang cannot start: from the cluster's objects alone, without any code of the allocator.

`check.check(certificate, facts)` is the one entrance. Plain and slow; it uses `evidence` to read the objects, `cel` to evaluate selectors, and
the document's form in `api.certificate`. Pure, and at most 400 lines of code together (a test counts), so that whoever has to trust
it can read it in an hour.
"""
