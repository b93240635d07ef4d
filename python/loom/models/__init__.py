"""Models from elsewhere, and networks to elsewhere."""
