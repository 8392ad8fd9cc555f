"""`python -m commeff` is the `commeff` command; so is `torchrun ... -m commeff`."""

from commeff.experiments.cli import main

if __name__ == "__main__":
    main()
