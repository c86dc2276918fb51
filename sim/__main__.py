"""``python -m sim`` is the command ``kvplan``."""

from sim.cli import main

if __name__ == "__main__":
    main()
