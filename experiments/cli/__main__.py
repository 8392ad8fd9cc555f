"""`python -m experiments.cli`."""

from experiments.cli import main

if __name__ == "__main__":
    main()
