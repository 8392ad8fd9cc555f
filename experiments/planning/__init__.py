"""What a run will cost, before it begins: `commeff plan`, `gain`, `bandwidth` and `scale`. Nothing else
imports this room.

question                         the words of `commeff plan` as a model, a cluster and a policy
plan, sweeps, figures            its answers
evidence                         what is known of the steps that each method needs: convergence.yaml, laws of losses
gain, gain_page, drop_in         every method's best policy beside psgd's
bandwidth                        Gbit/s that a method needs
forecast, peak                   `--run`: what a run will send and hold
scale                            throughput against the number of workers; jobs of so many parameters and seconds
"""
