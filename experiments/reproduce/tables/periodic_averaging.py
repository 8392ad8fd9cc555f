from commeff.experiments.reproduce import claim, floor, onset, order

title = "Gossip with a global average now and then: transient stages on rings of 20, 50 and 100 workers"
paper = "Chen et al. 2021, accelerating gossip SGD with periodic global averaging (Gossip-PGA), arXiv 2105.09080"
about = """Logistic regression with noisy gradients, each worker with data of its own. The step falls as 1/k, so that parallel SGD's error
falls as 1/(n k) and the others reach its curve after a transient stage. The stage ends at the first evaluated step from which on the
workers' error stays within twice that of parallel SGD with the same noise. The error is f(mean) - min f + (L / 2) mean |x_i - mean|^2, which
bounds the mean of f(x_i) - min f from above. The paper's abstract bounds
the stage by n^3 beta^4 / (1 - beta)^4 for gossip SGD, by n^3 beta^4 H^4 for Gossip-PGA and by n^3 H^4 for local SGD, where beta is the
second largest singular value of W: about 1 - 13 / n^2 on a ring. The problem is ours."""
settings = {"topology": "ring", "workers": "20, 50, 100"}
left_open = {"problem": "logistic regression with 200 Gaussian samples of 10 numbers for each worker, L2 of 0.1, noise sigma = 1",
             "step": "50 / (50 + k)", "L": "0.38, a bound", "H": "16", "Gossip-AGA": "starts at a period of 4 and chooses its periods by the loss",
             "onset": "within a factor 2, for good; evaluated every 100 of 20,000 steps, at all distances from the last average, which makes lines jagged"}
base = {"task": "risk", "task.data": "drawn", "task.strength": 0.1, "task.rows": 200, "task.dimension": 10, "task.drift": 0.5, "task.sigma": 1.0,
        "schedule": "inverse_time", "schedule.delay": 50, "optimizer.lr": 1.0, "steps": 20000, "evaluate_every": 100, "checkpoint_every": 0,
        "engine": "vmap"}
seeds = [15, 16, 17, 18, 19, 20, 21, 22, 23, 24]
metrics = {"error": lambda m: m["val_loss"] + 0.19 * m["consensus_distance"] ** 2}
late, error = onset("error", "psgd", 2), floor("error")
show = [late, error, "consensus_distance", "payload_bytes"]
_n = {"workers": [20, 50, 100]}
grid = [{"name": "psgd", "method": "psgd", **_n}, {"name": "dsgd", "method": "dsgd", "topology": "ring", **_n},
        {"name": "pga", "method": "gossip_pga", "method.period": 16, "topology": "ring", **_n},
        {"name": "local_sgd", "method": "local_sgd", "method.period": 16, **_n},
        {"name": "aga", "method": "gossip_aga", "topology": "ring", **_n}]

def claims(r):
    bounds = "the abstract: n^3 beta^4 H^4 against n^3 beta^4 / (1 - beta)^4"
    for at in r.each("workers"):
        yield claim(late(at.pga) < late(at.dsgd), "Gossip-PGA's transient stage is shorter than gossip SGD's", bounds)
        yield claim(late(at.pga) < late(at.local_sgd), "it is shorter than local SGD's", "the abstract: n^3 beta^4 H^4 against n^3 H^4")
        yield claim(error(at.pga) < error(at.dsgd), "at the end Gossip-PGA's error is below gossip SGD's", bounds)
    yield claim(order(*((error(r.dsgd(workers=n)) / error(r.pga(workers=n))) for n in (20, 50, 100))),
                "what the averages gain grows with the ring", "the same: 1 - beta falls as 1 / n^2, H does not", of="us")

names = {"dsgd": "gossip SGD", "pga": "Gossip-PGA", "aga": "Gossip-AGA"}
figure = {"x": "step", "y": "error", "panels": {"workers": "{} workers"}, "log": "xy", "y_title": "error of the workers"}
scales = {"smoke": {"steps": 20, "evaluate_every": 10, "keep": {"workers": 20}}}
cost = {"smoke": "5 s", "full": "four hours of one core"}
