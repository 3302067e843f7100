"""Ray Jobs: a search or campaign that travels to a cluster."""
