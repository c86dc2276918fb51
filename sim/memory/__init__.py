"""Blocks and bytes: pools, the prefix cache, tiers, links."""
