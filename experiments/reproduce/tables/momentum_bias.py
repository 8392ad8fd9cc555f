from operator import itemgetter

from commeff.experiments.reproduce import claim, final, order, within

title = "Momentum amplifies DSGD's bias, and DecentLaM takes that back"
paper = "Yuan et al. 2021, DecentLaM, arXiv 2104.11981"
about = """Full gradients of heterogeneous quadratics on a ring of 8. The fixed point of DmSGD with step gamma and momentum beta is that
of DSGD with step gamma / (1 - beta): its floor grows with momentum. DecentLaM's is that of DSGD with step gamma, whatever its momentum.
DmSGD keeps its momentum with the worker, as in the paper; `mixed` averages it too (arXiv 2110.13363) and is beside it for comparison."""
settings = {"momentum": "0.5 and 0.8", "gradients": "exact"}
left_open = {"problem": "quadratics: L = 1, L/mu = 5, zeta = 1, another for each seed", "step": 0.04}
parameters = ["beta"]
base = {"task": "quadratic", "task.condition": 5, "task.zeta": 1.0, "workers": 8, "topology": "ring", "steps": 750,
        "evaluate_every": 25, "optimizer.lr": 0.04, "checkpoint_every": 0, "engine": "vmap"}
seeds = [0, 1, 2, 3, 4]
gap, beta = final("val_loss"), itemgetter("beta")
show = [gap, "distance", "consensus_distance"]
grid = [{"name": "dsgd", "method": "dsgd", "steps": 1500},
        {"name": "dsgd_raised", "method": "dsgd", "beta": [0.5, 0.8], "optimizer.lr": lambda c: 0.04 / (1 - c["beta"])},
        {"name": "dmsgd", "method": "dsgd", "optimizer": "momentum", "beta": [0.5, 0.8], "optimizer.momentum": beta},
        {"name": "mixed", "method": "dmsgd", "beta": [0.5, 0.8], "method.beta": beta},
        {"name": "decentlam", "method": "decentlam", "beta": [0.5, 0.8], "method.beta": beta}]

def claims(r):
    yield claim(order(gap(r.dsgd), gap(r.dmsgd(beta=0.5)), gap(r.dmsgd(beta=0.8))), "the more momentum, the higher DmSGD's floor",
                "arXiv 2104.11981: momentum amplifies the inconsistency bias")
    for at in r.each("beta"):
        yield claim(gap(at.decentlam) < gap(at.dmsgd), "DecentLaM's floor is below DmSGD's",
                    "arXiv 2104.11981: DecentLaM removes the bias that momentum adds")
        yield claim(within((gap(at.decentlam) / gap(at.dsgd)), 1, 1e-5), "DecentLaM's floor is that of DSGD, to a hundred-thousandth",
                    "the same fixed point: no momentum in its bias", of="theory")
        yield claim(within(gap(at.dmsgd) / gap(at.dsgd_raised), 1, 1e-5), "DmSGD's is that of DSGD at the step gamma / (1 - beta)",
                    "the same fixed point", of="theory")

names = {"dsgd_raised": "DSGD, raised step", "mixed": "DmSGD, momentum averaged"}
figure = {"y_title": "f(x) - min f", "x": "step", "y": "val_loss", "lines": {"beta": "momentum {}"}, "log": "y",
          "only": {"name": ["dsgd", "dmsgd", "decentlam"]}}
scales = {"smoke": {"steps": 9, "evaluate_every": 3, "keep": {"beta": 0.5}}}
cost = {"smoke": "5 s", "full": "3 minutes of one core"}
