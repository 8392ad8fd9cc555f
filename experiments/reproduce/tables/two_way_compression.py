from commeff.experiments.reproduce import apply, claim, floor, within

title = "Compression both ways: NEOLITHIC beside parallel SGD, QSGD, MEM-SGD, DoubleSqueeze and EF21-SGD on logistic regression"
paper = """Huang, Chen, Yin, Yuan 2022, lower bounds and nearly optimal algorithms in distributed learning with communication compression
(NEOLITHIC), arXiv 2206.03665: the abstract"""
about = """The problem is ours, because the paper's section of experiments was not at hand; claims are that of its abstract and ours. Logistic
regression with l2, each worker with data of its own and noisy gradients. Top-1 compresses the way up, and the way down where the method
has a server; QSGD compresses the way up, unbiased. All evaluate as many gradients: NEOLITHIC takes half as many steps, each of two
minibatches and of two messages each way, and parallel SGD of two minibatches a step stands beside it. Judged is f(x) - min f at the best
of five rates, mean over the last quarter of the evaluations."""
settings = {"compressors": "Top-1 of 20 numbers; QSGD of one level", "rounds": "2"}
left_open = {"problem": "8 workers, each with 200 Gaussian samples of 20 numbers and labels of a model of its own (drift 1), L2 of 0.01, noise sigma = 1",
             "gradients": "1,000 of each worker", "rate": "constant, the best of five on seed 100", "EF21": "its first message is dense"}
parameters = ["minibatches"]

base = {"task": "risk", "task.data": "drawn", "task.rows": 200, "task.dimension": 20, "task.drift": 1.0, "task.strength": 0.01,
        "task.sigma": 1.0, "workers": 8, "steps": lambda c: 1000 / c["minibatches"], "evaluate_every": lambda c: 40 / c["minibatches"],
        "checkpoint_every": 0, "engine": "vmap"}
seeds = [0, 1, 2, 3, 4]
lowest = floor("val_loss")
tune = {"over": "optimizer.lr", "by": lowest, "seeds": [100]}
show = [lowest, "val_loss", "payload_bytes"]
_swept = {"minibatches": 1, "optimizer.lr": [0.008, 0.016, 0.03, 0.06, 0.12]}
_of_two, _top_1 = {**_swept, "minibatches": 2}, {"compressor": "top_k", "compressor.k": 1}
grid = [{"name": "psgd", "method": "psgd", **_swept}, {"name": "psgd_of_two", "method": "psgd", "accumulate": 2, **_of_two},
        {"name": "qsgd", "method": "compressed_sgd", "compressor": "qsgd", "compressor.levels": 1, **_swept},
        {"name": "mem_sgd", "method": "mem_sgd", **_top_1, **_swept}, {"name": "double_squeeze", "method": "double_squeeze", **_top_1, **_swept},
        {"name": "neolithic", "method": "neolithic", **_top_1, **_of_two}, {"name": "ef21_sgd", "method": "ef21", **_top_1, **_swept}]

def claims(r):
    yield claim(lowest(r.neolithic) <= lowest(r.qsgd), "NEOLITHIC ends no higher than QSGD", "the abstract: contractive compression both ways "
                "can converge as fast as unbiased compression one way")
    yield claim(within(lowest(r.neolithic), lowest(r.psgd_of_two), share=0.25), "NEOLITHIC ends within a quarter of parallel SGD of two minibatches",
                "a quarter is ours", of="us")
    others = [lowest(r[name]) for name in ("psgd", "psgd_of_two", "qsgd", "mem_sgd", "double_squeeze", "neolithic")]
    yield claim(lowest(r.ef21_sgd) > apply(max, *others), "EF21-SGD is the worst", "as in the paper's table for CIFAR-10, on other data", of="us")
    yield claim(lowest(r.neolithic) <= 1.25 * lowest(r.double_squeeze), "NEOLITHIC ends at most a quarter above DoubleSqueeze",
                "in the paper's table for CIFAR-10 it is better; a quarter is ours", of="us")

names = {"mem_sgd": "MEM-SGD", "psgd_of_two": "parallel SGD, two minibatches"}
figure = {"x": "name", "y": lowest, "log": "y", "y_title": "f(x) - min f"}
scales = {"smoke": {"steps": 4, "evaluate_every": 2}}
cost = {"smoke": "5 s", "full": "3 minutes of one core"}
