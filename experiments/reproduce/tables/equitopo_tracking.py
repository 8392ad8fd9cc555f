from math import sqrt

from commeff.experiments.reproduce import claim, printed, to, within

title = "Gradient tracking on one-peer graphs of 300 workers, non-convex logistic regression"
paper = """Song, Li, Jin, Shi, Yan, Yin, Yuan 2022, EquiTopo, arXiv 2210.07881, and the authors' notebook DSGT_nonconvex.ipynb"""
about = """Each of 300 workers has 1,000 samples of its own with d = 10, drawn by a logistic model that is x° + 0.2 N(0, I); the regulariser is
0.001 sum x_j^2 / (1 + x_j^2), the gradient noise 1e-6 in each number. norm = |grad f| at the mean of the workers. The problem is one, the
noise and the graphs are drawn for each seed.

The notebook runs EquiDyn with the step 3 and one-peer exponential with 1.6. Both steps are run for all here. Its gradient adds the sum
over j of the regulariser's slopes to every number; here each number has its own."""
settings = {"problem": "n = 300, d = 10, 1,000 samples a worker, R = 0.001, drift 0.2, noise 1e-6", "eta of EquiDyn": 0.5,
            "step": "3 for EquiDyn, 1.6 for one-peer exponential"}
left_open = {"order": "x and y are mixed after the step (atc); the notebook mixes y before the change of the gradient is added",
             "repeats": "5, of 100 steps; the notebook has 10 of 300"}
metrics = {"norm": lambda m: sqrt(m["gradient"])}
base = {"method": "gradient_tracking", "task": "risk", "task.data": "drawn", "task.regulariser": "nonconvex", "task.strength": 0.001,
        "task.sigma": 3.16227766e-6, "workers": 300, "steps": 100, "evaluate_every": 2, "checkpoint_every": 0,
        "engine": "vmap"}
seeds = [*range(5)]
steps = to("norm", 1e-4, of="step")
show = [steps, "norm", "wire_bytes"]
grid = [{"name": name, "topology": name, "optimizer.lr": [1.6, 3]} for name in ("one_peer_exponential", "od_equidyn", "ou_equidyn")]
tolerance = {"kind": "relative", "by": 0.15}
numbers = [printed(name, steps, value, "read off the notebook's figure", {"optimizer.lr": lr}) for name, value, lr in (
    ("one_peer_exponential", 90, 1.6), ("od_equidyn", 44, 3), ("ou_equidyn", 44, 3))]

def claims(r):
    for name, words in (("od_equidyn", "OD-EquiDyn"), ("ou_equidyn", "OU-EquiDyn")):
        yield claim(steps(r[name](lr=3)) < steps(r.one_peer_exponential(lr=1.6)), f"{words} with its step is faster than one-peer exponential with its own",
                    "the notebook's figure")
        for at in r.each("lr"):
            yield claim(within(steps(at[name]), steps(at.one_peer_exponential), share=0.1), f"at the same step {words} takes as many steps, to 10 %",
                        "the notebook's code at equal steps: 89 and 89 steps at 1.6, 44 and 46 at 3", of="us")

figure = {"x": "step", "y": "norm", "panels": {"optimizer.lr": "step {}"}, "log": "y", "y_title": "norm of the gradient"}
scales = {"smoke": {"steps": 5, "seeds": [1], "task.rows": 20}}
cost = {"smoke": "30 s", "full": "10 minutes of one core"}
