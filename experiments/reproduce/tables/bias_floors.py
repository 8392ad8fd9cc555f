from commeff.experiments.reproduce import claim, final, slope, within

title = "Floors of decentralised methods under a constant step"
paper = """Yuan, Ling, Yin 2016 (arXiv 1310.7063): DSGD stops at a distance of the order of its step. Tang et al. 2018 (D2, arXiv
1803.07068), Yuan et al. 2019 (exact diffusion, arXiv 1702.05122), Nedić et al. 2017 (gradient tracking, arXiv 1607.03218): no floor"""
about = """Full gradients of quadratics that differ among workers in curvature and optimum, lazy ring of 8. DSGD stops at the fixed point of
x = W (x - gamma grad f(x)), which for quadratics is a linear solve. To first order its distance to the optimum is proportional to the step,
so the gap to the optimal value falls with the square of small steps; at larger ones it grows more slowly. D2, exact diffusion and gradient
tracking go on to the optimum."""
settings = {"workers": "8 on a ring, W = (I + W_ring)/2, whose smallest eigenvalue D2 needs above -1/3",
            "gradients": "exact (sigma = 0), heterogeneity at the optimum zeta = 1, L = 1, L/mu = 2 for each worker"}
left_open = {"problem": "the papers prove it for any; quadratics, another for each seed, have a known optimum and fixed point"}

def length(c):
    return round(40 / c["optimizer.lr"])

base = {"task": "quadratic", "task.condition": 2, "task.zeta": 1.0, "workers": 8, "topology": "lazy", "steps": length,
        "evaluate_every": lambda c: round(c["steps"] / 20), "checkpoint_every": 0, "engine": "vmap"}
seeds = [0, 1, 2, 3, 4]
gap = final("val_loss")

def fixed_point(c):
    """f(x) - min f at the mean over workers of DSGD's fixed point: coordinate by coordinate, n numbers solve n equations."""
    import numpy as np

    from commeff.experiments.tasks.quadratic import Quadratic  # slow: with torch
    from commeff.topologies import lazy, ring

    task, mixing = Quadratic(int(c["workers"]), int(c["seed"]), condition=c["task.condition"]), lazy(ring(int(c["workers"]))).at(0).dense()
    kept, pull = (1 - c["optimizer.lr"] * task.curvatures).numpy(), (c["optimizer.lr"] * task.curvatures * task.centres).numpy()
    rows = [np.linalg.solve(np.eye(len(mixing)) - mixing * a, mixing @ b) for a, b in zip(kept.T, pull.T, strict=True)]
    return float(0.5 * (task.curvatures.numpy().mean(0) * (np.mean(rows, 1) - task.optimum.numpy()) ** 2).sum())

show = [gap, fixed_point, "distance", "consensus_distance"]
_large = [0.04, 0.08, 0.16]
grid = [{"name": "dsgd_small", "method": "dsgd", "optimizer.lr": [0.0025, 0.005, 0.01, 0.015, 0.02]},
        {"name": "dsgd", "method": "dsgd", "optimizer.lr": _large},
        *({"name": name, "method": name, "optimizer.lr": _large} for name in ("d2", "exact_diffusion", "gradient_tracking"))]
SOURCES = {"d2": ("D2", "arXiv 1803.07068"), "exact_diffusion": ("exact diffusion", "arXiv 1702.05122"),
           "gradient_tracking": ("gradient tracking", "arXiv 1607.03218")}

def claims(r):
    for at in r.each("lr", of="d2"):
        for name, (words, source) in SOURCES.items():
            yield claim(gap(at[name]) < 1e-6 * gap(at.dsgd), f"{words} falls below a millionth of DSGD's floor", f"{source}: converges to "
                        "the optimum at a constant step; a millionth is ours")
    for name in ("dsgd_small", "dsgd"):
        for at in r.each("lr", of=name):
            yield claim(within((gap / fixed_point)(at[name]), 1, 1e-6), "DSGD's floor is that of its fixed point, to a millionth",
                        "the linear solve", of="theory")
    yield claim(within(slope(gap, "lr")(r.dsgd_small), 2, 0.1), "DSGD's floor grows with the square of small steps",
                "the fixed point to first order in the step; arXiv 1310.7063 bounds the distance from above by that order", of="theory")

names = {"dsgd_small": "DSGD, small steps", "d2": "D2"}
figure = {"x": "optimizer.lr", "y": gap, "log": "xy", "guides": {"slope 2": 2},
          "x_title": "step", "y_title": "floor of f(x) - min f"}
scales = {"smoke": {"steps": 12, "evaluate_every": 4, "keep": {"optimizer.lr": [0.01, 0.08]}}}
cost = {"smoke": "10 s", "full": "6 minutes of one core"}
