"""What a run will cost, before it begins: `commeff plan`, `commeff bandwidth` and `commeff scale`. Nothing else imports
this room.

question                         the words of `commeff plan` as a model, a cluster and a policy
plan, sweeps, figures            its answers
convergence                      how many steps each way of communicating needs
bandwidth, job                   Gbit/s that a method needs, of a model on a cluster or of parameters and seconds
forecast, peak                   `--run`: what a run will send and hold
scale                            throughput against the number of workers
"""
