from commeff.experiments.reproduce import claim, floor, order

title = "Error feedback on noisy gradients: EF21-SGDM, EF21-SGD and EF14-SGD with minibatches of 1, 8 and 64"
paper = """Fatkhullin, Tyurin, Richtárik 2023, momentum provably improves error feedback, arXiv 2305.15155: the abstract, and figure 1,
whose problem has two numbers"""
about = """The problem is ours, because the paper's section of experiments was not at hand; claims are those of its abstract. It is that of
the authors' earlier paper on EF21 (arXiv 2106.05203), with minibatches: logistic regression with a non-convex regulariser, 20 workers, one
of the numbers of a gradient in each message. Workers have different data. Methods take equally many steps at tuned rates; judged is the
squared norm of f's gradient, mean over the last quarter of the evaluations."""
settings = {"compressor": "Top-1", "EF21-SGDM": "eta equals the rate, as in figure 1"}
left_open = {"data": "mushrooms, sorted by label: all workers but one have a single label", "regulariser": "0.1 times the sum of x^2 / (1 + x^2)",
             "minibatch": "1, 8, 64 samples a worker; it has 325", "steps": "1,000", "first message": "dense",
             "rate": "the best of five on seed 100"}

base = {"task": "logistic", "task.data": "mushrooms", "task.regulariser": "nonconvex", "task.l2": 0.1, "task.partition": "shards", "task.shards": 1,
        "workers": 20, "steps": 1000, "evaluate_every": 50, "checkpoint_every": 0, "engine": "vmap"}
seeds = [0, 1, 2, 3, 4]
lowest = floor("gradient")
tune = {"over": "optimizer.lr", "by": lowest, "seeds": [100]}
show = [lowest, "gradient", "train_loss", "payload_bytes"]
_swept = {"task.batch": [1, 8, 64], "optimizer.lr": [0.003, 0.006, 0.012, 0.025, 0.05]}
_top_1 = {"compressor": "top_k", "compressor.k": 1, **_swept}
grid = [{"name": "psgd", "method": "psgd", **_swept}, {"name": "ef14", "method": "mem_sgd", **_top_1},
        {"name": "ef21", "method": "ef21", **_top_1, "task.batch": [8, 64]},
        {"name": "ef21", "method": "ef21", **_top_1, "task.batch": 1, "optimizer.lr": [0.012, 0.025, 0.05, 0.1, 0.2]},
        {"name": "ef21_sgdm", "method": "ef21_sgdm", "method.eta": lambda c: c["optimizer.lr"], **_top_1}]

def claims(r):
    needs = "the abstract: variants of error feedback rely on very large batches to converge, which momentum mends in theory and in practice"
    for at in r.each("batch"):
        yield claim(lowest(at.ef21_sgdm) < lowest(at.ef21), "EF21-SGDM ends below EF21-SGD", needs)
        yield claim(lowest(at.ef21_sgdm) < lowest(at.ef14), "EF21-SGDM ends below EF14-SGD", "the abstract: it improves the communication and sample "
                    "complexities of earlier error feedback")
    yield claim(order(*(lowest(r.ef21(batch=b)) for b in (64, 8, 1))), "the larger the batch, the lower EF21-SGD ends", needs)
    yield claim(10 * lowest(r.ef21_sgdm(batch=1)) < lowest(r.ef21(batch=1)), "with 1 sample EF21-SGDM ends below a tenth of EF21-SGD",
                "a trial before these runs, of one seed", of="us")
    yield claim(lowest(r.ef21_sgdm(batch=1)) < lowest(r.ef21(batch=64)), "EF21-SGDM with 1 sample ends below EF21-SGD with 64", needs, of="us")
    for at in r.each("batch"):
        yield claim(lowest(at.ef21_sgdm) <= 2 * lowest(at.psgd), "EF21-SGDM ends below twice parallel SGD", "2 is ours", of="us")

names = {"ef14": "EF14-SGD", "ef21": "EF21-SGD"}
figure = {"y_title": "squared norm of the gradient", "x": "step", "y": "gradient", "panels": {"task.batch": "batch {}"}, "log": "y"}
scales = {"smoke": {"task.data": "synthetic", "steps": 4, "evaluate_every": 2, "keep": {"batch": 8}}}
cost = {"smoke": "5 s", "full": "8 minutes of one core"}
