from math import ceil, log, sqrt
from operator import itemgetter

from commeff.experiments.reproduce import claim, final, within

title = "How fast random graphs average, to 1,024 workers, beside their theorems"
paper = """Song et al. 2022 (EquiTopo, arXiv 2210.07881); Friedman 2003 (random regular graphs, arXiv cs/0405020); Kolokolnikov, Osting,
von Brecht 2014 (algebraic connectivity of Erdos-Renyi graphs near the threshold)"""
about = """A graph is drawn for each seed, and claims speak of the mean over draws: a single lucky one decides nothing. rho = ||W - J||
is the factor by which one step shrinks a disagreement in the worst case; `rate` that a step where each step has another graph, of random
vectors. Nothing is trained."""
settings = {
    "EquiStatic": "degree (8 / 3) ln(2 n / p) / eps^2, with which rho is below eps with a probability of 1 - p at least; here eps = 0.8, p = 0.1",
    "random regular": "W = (I + A) / (degree + 1)", "Erdos-Renyi": "edges with probability 4 ln(n) / n, Metropolis weights"}
left_open = {"degree 10": "beside the theorem's 25 to 40 neighbours, as many as the exponential graph of 1,024 has", "eta of EquiDyn": 0.5}
measure = "consensus"
parameters = ["neighbours"]
metrics = {"gap_by_degree": lambda m: m["gap"] * (1 + m["degree"])}
base = {"method": "dsgd", "task": "quadratic", "task.dimension": 1}
seeds = [*range(20)]
rho, rate, degree = show = [*map(final, ("rho", "rate", "degree"))]
_workers = {"workers": [64, 256, 1024]}
grid = [
    {"name": "equistatic", "topology": "d_equistatic", "topology.m": lambda c: ceil(8 / 3 * log(2 * c["workers"] / 0.1) / 0.8**2), **_workers},
    {"name": "equistatic_10", "topology": "d_equistatic", "topology.m": 10, **_workers},
    {"name": "exponential", "topology": "exponential", **_workers},
    {"name": "od_equidyn", "topology": "od_equidyn", "topology.eta": 0.5, "workers": [16, 64, 256, 1024]},
    {"name": "regular", "topology": "random_regular", "neighbours": [4, 10], "topology.degree": itemgetter("neighbours"), **_workers},
    {"name": "erdos_renyi", "topology": "erdos_renyi", "topology.p": lambda c: 4 * log(c["workers"]) / c["workers"], **_workers}]

def friedman(c):
    return (1 + 2 * sqrt(c["neighbours"] - 1)) / (c["neighbours"] + 1)

def claims(r):
    for at in r.each("workers", of="equistatic"):
        yield claim(rho(at.equistatic) < 0.8, "EquiStatic of the theorem's degree averages by 0.8 or faster", "arXiv 2210.07881, theorem 1",
                    of="theory")
        yield claim(rho(at.equistatic_10) < rho(at.exponential), "with ten neighbours it averages faster than the exponential graph",
                    "arXiv 2210.07881: a gap that does not shrink with n, where that of the exponential graph is 2 / (1 + log2 n)",
                    "With 64 workers draws of ten shifts differ much, and on so few workers the exponential graph is good.", of="us")
        least = 4 * 0.38227 * log(at.erdos_renyi["workers"])
        yield claim(final("gap_by_degree")(at.erdos_renyi) >= least, "an Erdos-Renyi graph has the theorem's connectivity", """Kolokolnikov
                    et al.: the Laplacian's second eigenvalue is about 1.53 ln n; Metropolis weights are at least 1 / (1 + largest
                    degree), so 1 - rho >= 1.53 ln n / (1 + largest degree), for large n""", of="us")
    for at in r.each("workers", of="od_equidyn"):
        n = at.od_equidyn["workers"]
        yield claim(rate(at.od_equidyn) <= sqrt((n - 1) / (2 * n)), "OD-EquiDyn contracts as expected", "arXiv 2210.07881, expected contraction",
                    of="theory")
    for at in r.each("neighbours", "workers", of="regular"):
        yield claim(rho(at.regular) <= friedman(at.regular), "a random regular graph is as good as Friedman's bound",
                    "arXiv cs/0405020: the second eigenvalue of A is at most 2 sqrt(degree - 1) + epsilon; epsilon = 0 is ours", of="us")
    for at in r.at(workers=1024).each("neighbours", of="regular"):
        close = within(rho(at.regular), friedman(at.regular), 0.01)
        yield claim(close, "and hardly better for large n", "Alon and Boppana: and hardly less for large n; 0.01 is ours", of="us")

names = {"equistatic": "EquiStatic, the theorem's degree", "equistatic_10": "EquiStatic, degree 10", "od_equidyn": "OD-EquiDyn",
         "regular": "random regular"}
figure = {"x": "workers", "y": "rate", "lines": {"neighbours": "degree {}"}, "only": ["exponential", *names], "log": "x",
          "y_title": "factor of a disagreement a step"}
scales = {"smoke": {"keep": {"workers": 64}}}
cost = {"smoke": "3 s", "full": "3 minutes of one core"}
