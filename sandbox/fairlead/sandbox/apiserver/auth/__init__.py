"""What an authenticated user may do: RBAC, impersonation, and the check against privilege escalation.

Enters: a user and an access, and the stored RBAC objects. Leaves: a verdict with its reason, or 403.
Entrances: `rbac.Rbac` (an Authorizer), `impersonation.effective`, `escalation.check`.
"""
