"""What wrote results/, and the project's own benches. Not in the wheel: everything here runs from a checkout.

planner, networks, peers, splitting, batch_norm, periods   studies; `python -m commeff.experiments.studies.NAME`
bench   `commeff bench step | mix | processes | tensor | images | store`: how far from its limits
lab     `commeff lab`: real processes on slow networks that are made on this machine
commands   what `commeff bench` and `commeff lab` do
"""
