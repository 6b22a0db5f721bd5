"""The webhook's TLS certificate: created and renewed (`authority`), kept in a Secret (`secret`) or mounted, served (`tls`).

In: the host names to cover, the time, and a Secret or a directory. Out: Material, the server certificate with the authorities
that the apiserver is to trust. Entrance: `material()` of `secret.CertificateSecret` or `mounted.MountedCertificate`.
"""
