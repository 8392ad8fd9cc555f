from math import sqrt
from operator import itemgetter

from commeff.experiments.reproduce import claim, floor, least

title = "EF21 falls below the floor of error feedback: 6 of the paper's 12 pairs of data set and step"
paper = """Richtárik, Sokolov, Fatkhullin 2021, EF21, arXiv 2106.05203, section 5 and its figures of steps that are multiples of the
theoretical one"""
about = """Logistic regression with the regulariser 0.1 sum_j x_j^2 / (1 + x_j^2), 20 workers, full gradients, Top-1. With a constant step
error feedback stops where heterogeneous gradients leave it; EF21 goes on. Both methods take the same step: `times` the one of EF21's
theorem 1, 1 / (L + L_tilde sqrt(beta / theta)). The theoretical step is 1 / (246 L) on a9a, 1 / (601 L) on w8a and 1 / (224 L) on
mushrooms. Runs are so long that error feedback comes to rest, which at the theoretical step takes 20,000 steps on a9a, the quickest of
the three."""
settings = {"data": "LIBSVM's a9a, w8a and mushrooms, all rows of the training files",
            "problem": "non-convex regulariser, weight 0.1; 20 workers; Top-1; x = 0 at the start", "measured": "|grad f(x)|^2"}
left_open = {"partition": "random, one for each seed (the paper's is that of the files' order)",
             "multiples": "64 on all three data sets; 16 on a9a and mushrooms; 1 on a9a",
             "steps": "3,000 at 64 times; 31,000 at the theoretical step"}
parameters = ["data", "times"]

def step(c):
    alpha = c.compressor.delta
    return c["times"] * (1 / (c.task.L + c.task.L_tilde * ((1 + sqrt(1 - alpha)) / alpha - 1)))

base = {"task": "risk", "task.data": itemgetter("data"), "task.regulariser": "nonconvex", "task.strength": 0.1, "workers": 20,
        "compressor": "top_k", "compressor.k": 1, "optimizer.lr": step, "steps": 3000, "evaluate_every": 50, "checkpoint_every": 500,
        "engine": "vmap"}
lowest = floor("gradient")
show = ["gradient", least("gradient"), lowest, "payload_bytes"]
grid = [{"name": name, "method": method, **own} for name, method in (("ef21", "ef21"), ("ef", "mem_sgd")) for own in (
    {"data": "a9a", "times": [1, 16], "steps": lambda c: round(30000 / c["times"]) + 1000, "evaluate_every": lambda c: round(c["steps"] / 60)},
    {"data": "mushrooms", "times": 16, "steps": 20000, "evaluate_every": 250}, {"data": ["a9a", "w8a", "mushrooms"], "times": 64})]

def claims(r):
    for at in r.each("data", "times"):
        yield claim(lowest(at.ef21) < lowest(at.ef), "EF21 ends below error feedback", "arXiv 2106.05203, figures of section 5")

names = {"ef": "error feedback"}
figure = {"y_title": "squared norm of the gradient", "x": "step", "y": "gradient", "lines": {"times": "{}x theory"}, "panels": "data", "log": "xy", "floor": 1e-20}
scales = {"smoke": {"steps": 6, "evaluate_every": 2, "keep": {"data": "mushrooms", "times": 64}},
          "reduced": {"keep": {"data": "mushrooms", "times": 64}}}
cost = {"smoke": "5 s", "reduced": "2 minutes of one core", "full": "40 minutes of one core"}
