from math import ceil, cos, log, log2, pi, sqrt

from commeff.experiments.reproduce import claim, final, order, printed

title = "How fast topologies average, to 1,024 workers, beside their formulas"
paper = """Ying et al. 2021 (exponential graphs, arXiv 2110.13363), Takezawa et al. 2023 (Base-(k+1) graph, arXiv 2305.11420);
closed forms of ring, torus, star and hypercube are textbook spectra"""
about = """rho = ||W - J|| is the factor by which one step shrinks a disagreement in the worst case; `rate` that a step over a period
of a changing graph; `exact_after` the steps after which all agree exactly. Random graphs have a table of their own,
`random_graphs`. Nothing is trained, no seed changes anything, and all of it is checked theory: spectra and the ends of
finite sequences."""
settings = {"weights": "1/3 on the ring, 1/5 on the torus, 1/(1 + degree) on exponential graph and hypercube, as in the papers' code"}
measure = "consensus"
base = {"method": "dsgd", "task": "quadratic", "task.dimension": 1}
rho, rate, exact_after, degree = show = [*map(final, ("rho", "rate", "exact_after", "degree"))]
grid = [{"name": name, "topology": name, "workers": [16, 64, 256, 1024]} for name in ("ring", "torus", "star", "hypercube")]
grid += [{"name": "exponential", "topology": "exponential", "workers": [16, 64, 256, 300, 1024]},
    {"name": "one_peer", "topology": "one_peer_exponential", "workers": [16, 64, 256, 1024]},
    {"name": "one_peer_odd", "topology": "one_peer_exponential", "workers": [24, 100, 300]},
    {"name": "base", "topology": "base_graph", "topology.k": [1, 2, 4], "workers": [24, 100, 300, 1000]}]
tolerance = {"kind": "absolute", "by": 1e-9}
numbers = [printed(name, of, value, source, scale="smoke") for name, of, value, source in (
    ("ring", rho, lambda c: 1 / 3 + 2 / 3 * cos(2 * pi / c["workers"]), "spectrum of a circulant"),
    ("torus", rho, lambda c: (3 + 2 * cos(2 * pi / sqrt(c["workers"]))) / 5, "sum of two rings"),
    ("star", rho, lambda c: 1 - 1 / c["workers"], "W = I - L / n"),
    ("hypercube", rho, lambda c: 1 - 2 / (1 + log2(c["workers"])), "spectrum of the hypercube"),
    ("exponential", rho, lambda c: 1 - 2 / (1 + ceil(log2(c["workers"]))), "arXiv 2110.13363, proposition 1"),
    ("one_peer", exact_after, lambda c: log2(c["workers"]), "arXiv 2110.13363, lemma 1"))]

def claims(r):
    for at in r.each("k", "workers", of="base"):
        bound = 2 * log(at.base["workers"]) / log(1 + at.base["k"]) + 2
        yield claim(exact_after(at.base) <= bound, "Base-(k+1) is exact as soon as its theorem says", "arXiv 2305.11420, theorem 1", scale="smoke", of="theory")
        yield claim(degree(at.base) <= at.base["k"], "and has at most k neighbours", "arXiv 2305.11420", scale="smoke", of="theory")
    for at in r.each("workers", of="one_peer_odd"):
        yield claim(exact_after(at.one_peer_odd) > 1e9, "one peer is never exact where n is no power of two", "arXiv 2110.13363: exact for powers of two only", scale="smoke",
                    of="theory")
    at = r.at(workers=1024)
    yield claim(order(rho(at.exponential), rho(at.torus), rho(at.ring)), "the exponential graph averages faster than the torus, that than the ring", "arXiv 2110.13363, gaps of the order 1 / log n, 1 / n, 1 / n^2",
                of="theory")

figure = {"x": "workers", "y": 1 - rate, "only": ["ring", "torus", "star", "exponential"], "log": "xy", "guides": {"1/n^2": -2, "1/n": -1},
          "y_title": "spectral gap"}
scales = {"smoke": {"keep": {"workers": [16, 24]}}}
cost = {"smoke": "3 s", "full": "1 minute of one core"}
