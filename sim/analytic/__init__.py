"""Closed forms of KV-cache capacity, waste and time: pure functions of SI numbers, no state, no dependencies."""
