from math import log

from commeff.experiments.reproduce import claim, final, printed, within

title = "EquiTopo's graphs: how fast 300 workers average, and whether that depends on their number"
paper = """Song, Li, Jin, Shi, Yan, Yin, Yuan 2022, EquiTopo, arXiv 2210.07881, and the authors' notebook consensus.ipynb"""
about = """Averaging alone, from random numbers. `rate` is the factor a step by which the disagreement falls: rho = ||W - J|| of a fixed
graph; over a period of one-peer exponential; of a graph that is drawn anew for each step until ten digits agree. The notebook has one fixed
graph and one sequence of drawn ones with ten starts; beside them are thirty of each here.

The notebook's grid is not one at n = 300: its rows have int(sqrt(300)) = 17 places, and the matrix that it makes has row sums from 0.8 to 1.2,
so that workers do not even agree on a constant. Ours is 15 x 20 with Metropolis weights."""
settings = {"n = 300": "9 shifts, as static exponential has neighbours; eta = 0.5 for EquiDyn", "n from 1,000": "5 ln n shifts; eta = 0.5"}
left_open = {"one graph": "rho 0.70 for D- and 0.64 for U-EquiStatic, the nearest of ten draws to the notebook's 0.71 and 0.63",
             "OU-EquiDyn for n from 1,000": "of all shifts; the notebook draws from 5 ln n of them"}
measure = "consensus"
parameters = ["graphs"]
base = {"method": "dsgd", "task": "quadratic", "task.dimension": 1, "workers": 300}
seeds = [*range(10, 40)]  # ten others, 0 to 9, left three claims open
rate, degree = show = [final("rate"), final("degree")]
_both = {"graphs": "one graph", "topology.seed": 6}, {"graphs": "thirty graphs"}
grid = [{"name": name, "topology": name} for name in ("exponential", "one_peer_exponential", "ring", "grid")]
grid += [{"name": name, "topology": name, "topology.m": 9, **graphs} for name in ("d_equistatic", "u_equistatic") for graphs in _both]
grid += [{"name": name, "topology": name, "topology.eta": 0.5, **graphs} for name in ("od_equidyn", "ou_equidyn") for graphs in _both]
grid += [{"name": "d_large", "topology": "d_equistatic", "topology.m": lambda c: int(5 * log(c["workers"])), "workers": [1000, 2000, 3000, 4000, 5000]},
         {"name": "ou_large", "topology": "ou_equidyn", "topology.eta": 0.5, "workers": [1000, 2000, 3000, 4000, 5000]}]
tolerance = {"kind": "absolute", "by": 0.015}
numbers = [printed(name, rate, value, f"legend of the notebook's figure: lambda_2{near}", where) for name, value, near, where in (
    ("exponential", 0.80, "", {}), ("d_equistatic", 0.71, "; our graph was picked to be near it", {"graphs": "one graph"}),
    ("u_equistatic", 0.63, "; our graph was picked to be near it", {"graphs": "one graph"}))]

def claims(r):
    for at in r.each("graphs", of="d_equistatic"):
        of, source = ("paper", "the notebook's figures at n = 300") if at.d_equistatic["graphs"] == "one graph" else ("us", "thirty graphs instead of one")
        for name, words in (("d_equistatic", "D-EquiStatic"), ("u_equistatic", "U-EquiStatic")):
            yield claim(rate(at[name]) < rate(at.exponential), f"{words} averages faster than the exponential graph", source, of=of)
        for name, words in (("od_equidyn", "OD-EquiDyn"), ("ou_equidyn", "OU-EquiDyn")):
            yield claim((rate(at[name]) < rate(at.one_peer_exponential)) & (rate(at[name]) < rate(at.grid)) & (rate(at[name]) < rate(at.ring)),
                        f"{words} averages faster than one-peer exponential, grid and ring", source, of=of)
    for name, words in (("d_large", "D-EquiStatic"), ("ou_large", "OU-EquiDyn")):
        yield claim(within(rate(r[name](workers=5000)), rate(r[name](workers=1000)), share=0.1), f"{words} averages as fast with 5,000 workers",
                    "the notebook's figures of n from 1,000 to 5,000: the curves lie together; 10 % is ours")

names = {"d_large": "D-EquiStatic, 5 ln n shifts", "ou_large": "OU-EquiDyn"}
figure = {"x": "name", "y": "rate", "lines": {"graphs": "{}"}, "y_title": "factor a step", "only": ["exponential", "d_equistatic", "u_equistatic",
          "one_peer_exponential", "od_equidyn", "ou_equidyn", "grid", "ring"]}
scales = {"smoke": {"keep": {"workers": [1000]}, "seeds": [10]}}
cost = {"smoke": "5 s", "full": "3 minutes of one core"}
