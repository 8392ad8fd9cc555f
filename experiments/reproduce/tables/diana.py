from math import sqrt

from commeff.experiments.reproduce import claim, floor, rate, to

title = "DIANA and MARINA converge linearly where QSGD has a floor"
paper = """Mishchenko et al. 2019, DIANA, arXiv 1901.09269, with the steps of Horvath et al. 2019, arXiv 1904.05115, and Gorbunov,
Hanzely, Richtarik 2019, arXiv 1905.11261; Gorbunov et al. 2021, MARINA, arXiv 2102.07845; Alistarh et al. 2017, QSGD, arXiv 1610.02132"""
about = """Logistic regression with l2 on mushrooms, sorted by label over 20 workers, full gradients, four quantisation levels. QSGD
compresses gradients, which do not vanish at the optimum; DIANA compresses what remains after a learned shift, MARINA the change since
the last step. Each at the step of its theory, parallel SGD at 0.35, a little more than 1 / L_max. `kilobits` counts numbers that are sent whole,
all of parallel SGD's and those of a tenth of MARINA's steps, at 32 bits each, though runs are in float64."""
settings = {"problem": "regularised logistic regression on LIBSVM data", "quantisation": "4 levels, 2 norm"}
left_open = {"regularisation": "0.05, so that gradient descent is done in 1,000 steps", "partition": "sorted by label, 2 shards a worker"}

DENSE, QUANTISED = 8 * 112, 64  # bytes that a worker sends in a step: 112 numbers of float64, and as QSGD packs them

def kilobits(m):
    whole = (m["payload_bytes"] - QUANTISED * m["step"]) / (DENSE - QUANTISED)
    return 0.008 * (m["payload_bytes"] - whole * DENSE / 2)

def slow(c):
    return 1 / (c.task.L_max * (1 + 6 * c.compressor.omega / c["workers"]))

def marina_step(c, p=0.1):
    return min(1 / (c.task.L_max * (1 + sqrt(2 * (1 - p) * c.compressor.omega / (p * c["workers"])))), p / (2 * c.task.mu))

base = {"task": "risk", "task.data": "mushrooms", "task.strength": 0.05, "task.partition": "shards", "workers": 20, "steps": 1000,
        "evaluate_every": 20, "checkpoint_every": 0, "engine": "vmap"}
metrics = {"kilobits": kilobits}
seeds = [0, 1, 2, 3, 4]
lowest, sent = floor("val_loss"), to("val_loss", 1e-6, of="kilobits")
show = ["val_loss", lowest, rate("val_loss"), to("val_loss", 1e-6, of="step"), sent]
_qsgd = {"compressor": "qsgd", "compressor.levels": 4}
grid = [{"name": "psgd", "method": "psgd", "optimizer.lr": 0.35},
        {"name": "qsgd", "method": "compressed_sgd", **_qsgd, "optimizer.lr": slow},
        {"name": "diana", "method": "diana", **_qsgd, "optimizer.lr": slow},
        {"name": "marina", "method": "marina", **_qsgd, "method.probability": 0.1, "optimizer.lr": marina_step}]

def claims(r):
    for name, source in (("diana", "arXiv 1901.09269"), ("marina", "arXiv 2102.07845")):
        yield claim(lowest(r[name]) < lowest(r.qsgd), f"{name.upper()} falls below QSGD's floor", f"{source}: converges with full gradients whatever "
                    "the data")
        yield claim(sent(r[name]) < sent(r.psgd), f"{name.upper()} needs fewer bits than parallel SGD at 32 bits a number", f"{source}: fewer bits than "
                    "without compression")
    falls, alpha = rate("val_loss", down_to=1e-7), 1 / (1 + r.diana.compressor.omega)
    yield claim(falls(r.diana) <= 1 - min(slow(r.diana) * r.diana.task.mu, alpha / 2), "DIANA is as fast as the corollary says",
                "arXiv 1905.11261, corollary on DIANA, has this step and rate", of="theory")
    yield claim(falls(r.marina) <= 1 - marina_step(r.marina) * r.marina.task.mu, "MARINA is as fast as the theorem says",
                "arXiv 2102.07845, theorem for functions of Polyak and Lojasiewicz", of="theory")

figure = {"y_title": "f(x) - min f", "x": "kilobits", "y": "val_loss", "log": "xy", "floor": 1e-15, "x_title": "kilobits sent by a worker"}
scales = {"smoke": {"steps": 6, "evaluate_every": 2, "task.data": "synthetic"}}
cost = {"smoke": "5 s", "full": "3 minutes of one core"}
