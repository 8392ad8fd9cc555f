from math import sqrt

from commeff.experiments.reproduce import claim, rate

title = "EF21 converges linearly on least squares"
paper = "Richtárik, Sokolov, Fatkhullin 2021, EF21, arXiv 2106.05203, theorem 2 (Polyak-Lojasiewicz)"
about = """f(x) = mean of (<x, a> - y)^2 without a regulariser: mu is the least eigenvalue of its Hessian that is not zero, computed. At
the step of the theorem, min(1 / (L + L_tilde sqrt(2 beta / theta)), theta / (2 mu)), the Lyapunov function falls by 1 - gamma mu a step,
and f(x) - min f is part of it. Gaussian data of condition number 33: on LIBSVM's files 1 - gamma mu is so near 1 that any descent method
would keep the bound."""
settings = {"problem": "least squares", "compressor": "top-k", "step": "the theorem's"}
left_open = {"data": "Gaussian, of condition number 33", "partition": "random, another for each seed"}

def gamma(c):
    theta = 1 - sqrt(1 - c.compressor.delta)
    beta = (1 - c.compressor.delta) / theta
    return min(1 / (c.task.L + c.task.L_tilde * sqrt(2 * beta / theta)), theta / (2 * c.task.mu))

base = {"task": "risk", "task.data": "synthetic", "task.loss": "square", "task.strength": 0, "workers": 20, "method": "ef21",
        "compressor": "top_k", "optimizer.lr": gamma, "steps": 2500, "evaluate_every": 50, "engine": "vmap", "checkpoint_every": 0}
seeds = [0, 1, 2, 3, 4]
falls = rate("val_loss")
show = ["val_loss", falls]
grid = [{"name": "ef21", "compressor.k": [3, 10]}]

def claims(r):
    for at in r.each("k"):
        yield claim(falls(at.ef21) <= 1 - gamma(at.ef21) * at.ef21.task.mu, "EF21 is as fast as the theorem says", "theorem 2", of="theory")

figure = {"y_title": "f(x) - min f", "x": "step", "y": "val_loss", "lines": {"compressor.k": "top {}"}, "log": "y"}
scales = {"smoke": {"steps": 6, "evaluate_every": 2, "keep": {"compressor.k": 3}}}
cost = {"smoke": "5 s", "full": "2 minutes of one core"}
