"""Records in, numbers out: percentiles, ledgers that sum to the whole, intervals, checks, cost, what binds."""
