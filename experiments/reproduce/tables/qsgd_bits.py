from math import ceil

from commeff.experiments.reproduce import claim, final, printed, within

title = "QSGD at 2, 4 and 8 bits beside parallel SGD"
paper = "Alistarh et al. 2017, QSGD, arXiv 1610.02132, tables of accuracy"
about = """Each number is rounded at random to one of 1, 7 or 127 equal steps between zero and the largest magnitude of its bucket, with a
sign: 2, 4 or 8 bits, and that magnitude for each bucket. Everybody's message reaches everybody, so that with n workers n - 1 messages are
sent, where an all-reduce of 32 bits moves 2 (n - 1) / n. Bytes are claimed to the last one, at every scale."""
settings = {"norm": "the maximum: the variant of QSGD that later papers call QSGDinf (arXiv 1908.06077)", "bits": "2, 4, 8"}
left_open = {"bucket": "64 numbers at 2 bits, 512 at 4 and 8 bits; the text of the paper was not at hand", "model": "ResNet-20 at full scale",
             "workers": "4, with 32 images each a step",
             "rate": "the best of three on validation images, tried on a seed of its own in a quarter of the steps; momentum 0.9, cosine, "
                     "decay 1e-4",
             "scale reduced": "ResNet-8, 65,536 images in all, warm-up of a tenth of the steps, forward passes in bf16_mixed"}
parameters = ["bits"]

base = {"task": "cifar10", "task.variant": "whole", "task.model": "resnet20", "task.norm": "batch", "task.partition": "iid",
        "task.batch": 32, "workers": 4, "optimizer": "momentum", "optimizer.weight_decay": 1e-4, "schedule": "cosine",
        "steps": lambda c: round(200 * 45000 / (c["workers"] * c["task.batch"]))}
seeds = [0, 1, 2, 3, 4]
tune = {"over": "optimizer.lr", "by": "val_accuracy", "seeds": [100],
        "settings": {"steps": lambda c: round(c["steps"] / 4), "evaluate_every": lambda c: round(c["steps"] / 16)}}
accuracy = final("test_accuracy")
payload, sent, received = (final(f"{name}_bytes") for name in ("payload", "sent", "received"))
show = [accuracy, "val_accuracy", "train_loss", payload / final("epoch"), sent / final("epoch")]
grid = [{"name": "psgd", "method": "psgd", "optimizer.lr": [0.03, 0.1, 0.3]},
        {"name": "qsgd", "method": "compressed_sgd", "compressor": "qsgd", "compressor.norm": "max", "bits": [2, 4, 8],
         "compressor.bucket": lambda c: 64 if c["bits"] == 2 else 512,
         "compressor.levels": lambda c: round(2 ** (c["bits"] - 1) - 1), "optimizer.lr": [0.03, 0.1, 0.3]}]

def message(c):
    return ceil(c["bits"] * c.task.d / 8) + 4 * ceil(c.task.d / c["bucket"])

tolerance = {"kind": "relative", "by": 1e-9}
numbers = [printed(name, of / final("steps"), value, source, scale="smoke") for name, every, value, source in (
    ("psgd", [payload], lambda c: 4 * c.task.d, "4 bytes a number"),
    ("psgd", [sent, received], lambda c: 2 * (c["workers"] - 1) / c["workers"] * 4 * c.task.d, "ring all-reduce"),
    ("qsgd", [payload], message, "codes, and a norm for each bucket"),
    ("qsgd", [sent, received], lambda c: (c["workers"] - 1) * message(c), "all-gather")) for of in every]

def claims(r):
    for bits in (4, 8):
        yield claim(within(accuracy(r.qsgd(bits=bits)), accuracy(r.psgd), 0.015), f"{bits} bits end within 1.5 points of 32",
                    "arXiv 1610.02132, tables of accuracy: 4 and 8 bits reach that of 32; 1.5 points are ours")
    yield claim(within(accuracy(r.qsgd(bits=2)), accuracy(r.psgd), 0.05), "2 bits end within 5 points of 32", "5 points are ours", of="us")

figure = {"x": "epoch", "y": "val_accuracy", "lines": ["bits"]}
scales = {
    "smoke": {"task.variant": "subset", "task.model": "mlp", "task.norm": "none", "task.batch": 4, "task.probe": 64, "task.validation": 64,
              "steps": 2, "evaluate_every": 1, "keep": {"bits": [2, 8]}},
    "reduced": {"task.variant": "jpeg", "task.model": "resnet8", "task.validation": 1000, "task.probe": 512, "schedule": "one_cycle",
                "precision": "bf16_mixed", "steps": 512, "evaluate_every": 64, "checkpoint_every": 128}, "full": {"seeds": [0, 1, 2]}}
cost = {"smoke": "5 s", "reduced": "half an hour of one core, 20 runs of 65,536 images and 12 that tune",
        "full": "12 runs and 12 that tune of 9 million images, not run here: some hours of one GPU"}
