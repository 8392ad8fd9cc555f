from operator import itemgetter

from commeff.experiments.reproduce import claim, final, order, slope, within

title = "Drift of local steps, and SCAFFOLD, which corrects it"
paper = """Karimireddy et al. 2020, SCAFFOLD, arXiv 1910.06378; the floor of local SGD on different data: Khaled, Mishchenko, Richtárik
2020, arXiv 1909.04746, and Malinovsky et al. 2020, from local SGD to local fixed point methods, arXiv 2004.01442"""
about = """Full gradients of quadratics that differ among 8 workers, H local steps between two averages. Local SGD stops at the fixed point
of the mean of its workers' H steps, which is not the optimum. SCAFFOLD goes on to the optimum for every H."""
settings = {"gradients": "exact", "H": "2, 4, 8"}
left_open = {"problem": "quadratics, L = 1, L/mu = 5, zeta = 1, another for each seed", "step": "0.04"}
parameters = ["H"]
base = {"task": "quadratic", "task.condition": 5, "workers": 8, "optimizer.lr": 0.04, "steps": 2000, "evaluate_every": 50,
        "checkpoint_every": 0, "engine": "vmap"}
seeds = [0, 1, 2, 3, 4]
gap = final("val_loss")

def fixed_point(c):
    """f(x) - min f at the x that the mean of H local steps leaves where it is: solved in closed form, coordinate by coordinate."""
    from commeff.experiments.tasks.quadratic import Quadratic  # slow: with torch

    task = Quadratic(int(c["workers"]), int(c["seed"]), condition=c["task.condition"])
    moved = 1 - (1 - c["optimizer.lr"] * task.curvatures) ** int(c["H"])
    away = (moved * task.centres).sum(0) / moved.sum(0) - task.optimum
    return 0.5 * (task.curvatures.mean(0) * away.square()).sum()

show = [gap, fixed_point, "distance", "payload_bytes"]
_local = {"H": [2, 4, 8], "method.period": itemgetter("H")}
grid = [{"name": "local_sgd", "method": "local_sgd", **_local}, {"name": "scaffold", "method": "scaffold", **_local}]

def claims(r):
    for at in r.each("H"):
        yield claim(gap(at.scaffold) < 1e-6 * gap(at.local_sgd), "SCAFFOLD falls below a millionth of local SGD's floor",
                    "arXiv 1910.06378: SCAFFOLD's rate has no term of heterogeneity; a millionth is ours")
    yield claim(order(*(gap(r.local_sgd(H=H)) for H in (2, 4, 8))), "the more local steps, the higher local SGD's floor",
                "arXiv 1909.04746: the term of heterogeneous data grows with H")
    for at in r.each("H"):
        yield claim(within((gap / fixed_point)(at.local_sgd), 1, 1e-6), "local SGD's floor is that of its fixed point, to a millionth",
                    "arXiv 2004.01442: the fixed point of an average of operators; of quadratics in closed form", of="theory")
    yield claim(within(slope(gap, lambda c: c["H"] - 1)(r.local_sgd), 2, 0.1), "it grows with the square of H - 1",
                "the fixed point to first order in the step", of="theory")

figure = {"y_title": "f(x) - min f", "x": "step", "y": "val_loss", "lines": {"H": "H {}"}, "log": "y", "floor": 1e-20}
scales = {"smoke": {"steps": 8, "evaluate_every": 4, "keep": {"H": 4}}}
cost = {"smoke": "5 s", "full": "4 minutes of one core"}
