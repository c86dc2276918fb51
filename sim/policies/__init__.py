"""Pure decisions, one file each: a read-only view goes in, a choice comes out.

Each folder's `__init__` holds the discriminated union that a scenario accepts; that union is the list of what exists.
"""
