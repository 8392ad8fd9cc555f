from math import hypot

from commeff.experiments.reproduce import claim, floor, printed, to

title = "DSGD on EquiTopo graphs of 300 workers, least squares"
paper = """Song, Li, Jin, Shi, Yan, Yin, Yuan 2022, EquiTopo, arXiv 2210.07881, and the authors' notebook DSGD_convex.ipynb, whose
text was at hand where the paper's was not"""
about = """f_i(x) = |A_i x - b_i|^2 / 2 with 50 x 10 Gaussian A_i, gradient noise of standard deviation 1 in each number, x = 0 at the start.
error = sqrt(mean of |x_i - x*|^2 over workers) / |x*|. As in the notebook one problem, and one graph of nine random shifts, is run with
several draws of the noise, here thirty; beside it thirty graphs are drawn, which the notebook does not do. The notebook's problem has |x*| =
2.19 and this one another, so numbers are compared as `away` = error |x*|, the mean of the last 25 steps.

The notebook compares static exponential, D- and U-EquiStatic alone: no one-peer graph, ring or grid, none of which bears this step."""
settings = {"problem": "n = 300, d = 10, 50 rows a worker, label noise 0.1, gradient noise 1",
            "step": "0.037, over 1.4 after 39 and 79 steps; 100 steps", "repeats": "30; 10 in the notebook",
            "degree": "9 shifts for D- and U-EquiStatic, as static exponential has neighbours; U uses each both ways"}
left_open = {"one graph": "rho 0.70 for D- and 0.64 for U-EquiStatic, the nearest of ten draws to the notebook's 0.71 and 0.63"}
parameters = ["graphs"]
metrics = {"away": lambda m: hypot(m["distance"], m["consensus_distance"]), "error": lambda m: m["away"] * m["relative"] / m["distance"]}
base = {"method": "dsgd", "task": "least_squares", "task.sigma": 3.16227766, "task.data_seed": 0, "workers": 300, "optimizer.lr": 0.037,
        "schedule": "multi_step", "schedule.milestones": "[39,79]", "schedule.gamma": 0.714286, "steps": 100, "evaluate_every": 1,
        "checkpoint_every": 0, "engine": "vmap"}
seeds = [*range(10, 40)]  # ten others, 0 to 9, left a claim open
end, steps = show = [floor("away"), to("error", 0.3, of="step")]
grid = [{"name": "exponential", "topology": "exponential"},
        *({"name": name, "topology": name, "topology.m": 9, **graphs} for name in ("d_equistatic", "u_equistatic")
          for graphs in ({"graphs": "one graph", "topology.seed": 6}, {"graphs": "thirty graphs"}))]
tolerance = {"kind": "relative", "by": 0.1}
numbers = [printed(name, end, value, "the notebook's code, run again with ten draws of the noise; relative error times 2.19", where)
           for name, value, where in (("exponential", 0.02447, {}), ("d_equistatic", 0.02611, {"graphs": "one graph"}),
                                      ("u_equistatic", 0.02034, {"graphs": "one graph"}))]

def claims(r):
    for at in r.each("graphs"):
        of, source = ("paper", "the notebook's figure") if at.d_equistatic["graphs"] == "one graph" else ("us", "on thirty graphs instead of one")
        for name, words in (("d_equistatic", "D-EquiStatic"), ("u_equistatic", "U-EquiStatic")):
            yield claim(steps(at[name]) < steps(at.exponential), f"{words} reaches an error of 0.3 before the exponential graph", source, of=of)
        yield claim(end(at.u_equistatic) < end(at.exponential), "U-EquiStatic ends lower than the exponential graph", source, of=of)

names = {"exponential": "static exponential"}
figure = {"x": "step", "y": "error", "lines": {"graphs": "{}"}, "log": "y", "y_title": "relative error", "published": False}
scales = {"smoke": {"steps": 3, "seeds": [10]}}
cost = {"smoke": "10 s", "full": "9 minutes of one core"}
