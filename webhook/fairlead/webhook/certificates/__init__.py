"""The webhook's TLS certificate: created and renewed (`authority`), kept in a Secret or mounted, and served (`served`).

In: the host names to cover, the time, and a Secret or a directory. Out: Material, the server certificate with the authorities
that the apiserver is to trust. Entrance: `material()` of `served.CertificateSecret` or `served.MountedCertificate`.
"""
