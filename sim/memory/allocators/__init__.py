"""How a KV pool is divided."""
