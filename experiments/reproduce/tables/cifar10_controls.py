from math import ceil, log2

from commeff.experiments.reproduce import claim, equal, printed

title = "NEOLITHIC of two messages is DoubleSqueeze of one message twice as long"
paper = """Huang, Chen, Yin, Yuan 2022, NEOLITHIC, arXiv 2206.03665, algorithm 1; Tang et al. 2019, DoubleSqueeze, arXiv 1905.05957"""
about = """Top-k of what top-k left is the rest of top-2k. So NEOLITHIC of R = 2 rounds of top-5 % takes the steps of DoubleSqueeze with
top-10 % and two minibatches a step, to the last bit, on a ResNet-20 with momentum: what it gains over DoubleSqueeze with 5 % is the
larger batch and message, and nothing else. Its bytes differ by the rounding of one message to whole bytes instead of two."""
settings = {"workers": 8, "compressor": "top 5 % twice against top 10 %", "network": "ResNet-20"}
left_open = {"data": "whatever copy of CIFAR-10 is there; 60 steps, as equality needs no more", "learning rate": 0.1}
base = {"task": "cifar10", "task.norm": "batch", "task.partition": "iid", "task.batch": 16, "task.probe": 500, "workers": 8,
        "model": "resnet20", "steps": 60, "evaluate_every": 20, "optimizer": "momentum", "optimizer.lr": 0.1,
        "optimizer.weight_decay": 0.0005, "compressor": "top_k", "precision": "bf16_mixed"}
show = ["val_loss", "val_accuracy", "test_loss", "payload_bytes"]
grid = [{"name": "neolithic", "method": "neolithic", "compressor.ratio": 0.05},
        {"name": "double_squeeze", "method": "double_squeeze", "compressor.ratio": 0.1, "accumulate": 2}]

def sent(c, messages, share):
    k, bits = share * round(0.05 * c.task.d), ceil(log2(c.task.d))
    return c["steps"] * messages * (4 * k + ceil(k * bits / 8))

tolerance = {"kind": "absolute", "by": 0}
numbers = [printed("neolithic", "payload_bytes", lambda c: sent(c, 4, 1), "two messages up and two down", scale="smoke"),
           printed("double_squeeze", "payload_bytes", lambda c: sent(c, 2, 2), "one message up and one down", scale="smoke")]

def claims(r):
    yield claim(equal(r.neolithic, r.double_squeeze), "both take the same steps", "the nesting of top-k", scale="smoke", of="theory")
    yield claim(equal(r.neolithic, r.double_squeeze, "parameter_norm"), "to the same model", "the same", scale="smoke", of="theory")

names = {"neolithic": "NEOLITHIC, twice top 5 %", "double_squeeze": "DoubleSqueeze, top 10 %"}
figure = {"x": "step", "y": "val_loss"}
scales = {"smoke": {"steps": 1, "task.batch": 2, "task.validation": 20, "task.probe": 32}}
cost = {"smoke": "5 s", "full": "10 minutes of one core"}
