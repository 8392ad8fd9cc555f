"""The network lab: real processes on slow networks that are made on this machine, and seconds measured there.

- `namespaces`: what is asked of the kernel.      `network`: nodes on a switch, every link of a given rate.
- `grid`: a grid on one network after another, a run with one process on each node.
- `bench`: single exchanges beside the model.     `outcome`, `report`: seconds to a target, measured and modelled.
"""
