"""What belongs to a member besides its pod: ResourceClaims and what they state, volumes, and what claims count for in ResourceQuotas."""
