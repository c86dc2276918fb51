"""SimPy processes: trajectories, the step loop, pauses, the cluster."""
