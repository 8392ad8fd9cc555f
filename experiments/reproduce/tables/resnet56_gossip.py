from commeff.experiments.reproduce import claim, final, printed

title = "Static against one-peer exponential graphs, ResNet-56 on CIFAR-10, 4 workers"
paper = """Ying, Yuan et al. 2021, exponential graphs, arXiv 2110.13363; the pair 91.21 / 91.84 is that of its public repository, on
CIFAR-10"""
about = """Gossip with one message a step beside gossip with two, on the same minibatches. The accuracy is that of the average model, with
BatchNorm statistics estimated anew. At scale reduced a ResNet-8 sees 100,000 images in all, with another batch; only the difference of the
two graphs is then spoken of."""
settings = {"model": "ResNet-56", "workers": 4, "batch": "128 each", "epochs": 200, "lr": 0.01, "momentum": 0.9, "weight decay": "5e-4"}
left_open = {"schedule": "cosine",
    "rate": "the paper's 0.01, or 0.03, 0.1 or 0.3: the best on validation images, tried on a seed of its own in a quarter of the steps",
    "augmentation": "crops and mirror images",
    "data": "45,000 images train, 5,000 choose the rate; CIFAR-10 is read as JPEG copies where the official files are not there",
    "scale reduced": "ResNet-8, 4 x 32 images a step, warm-up of a tenth of the steps, forward passes in bf16_mixed"}
comparable = {"task.variant": "full"}
base = {"task": "cifar10", "task.variant": "whole", "task.model": "resnet56", "task.norm": "batch", "task.partition": "iid",
        "task.batch": 128, "workers": 4, "optimizer": "momentum", "optimizer.weight_decay": 5e-4, "schedule": "cosine", "method": "dsgd",
        "steps": lambda c: round(200 * 45000 / (c["workers"] * c["task.batch"]))}
seeds = [*range(10)]
tune = {"over": "optimizer.lr", "by": "val_accuracy", "seeds": [100],
        "settings": {"steps": lambda c: round(c["steps"] / 4), "evaluate_every": lambda c: round(c["steps"] / 16)}}
accuracy, sent, received, steps = (final(name) for name in ("test_accuracy", "sent_bytes", "received_bytes", "steps"))
show = [accuracy, "val_accuracy", "train_loss", "consensus_distance", sent / final("epoch")]
grid = [{"name": name, "topology": topology, "optimizer.lr": [0.01, 0.03, 0.1, 0.3]}
        for name, topology in (("static", "exponential"), ("one_peer", "one_peer_exponential"))]
tolerance = {"kind": "absolute", "by": 0.01}
numbers = [printed("static", accuracy, 0.9121, "algorithms.md A5, the repository's README"), printed("one_peer", accuracy, 0.9184, "the same"),
           printed("static", sent / steps, lambda c: 2 * 4 * c.task.d, "neighbours at offsets 1 and 2, 4 bytes a number", scale="smoke"),
           printed("one_peer", received / steps, lambda c: 4 * c.task.d, "one neighbour", scale="smoke")]

def claims(r):
    yield claim(accuracy(r.one_peer) > accuracy(r.static), "one message a step is better than two", "91.84 against 91.21")
    yield claim(accuracy(r.one_peer) >= accuracy(r.static) - 0.015, "it loses at most 1.5 points", "91.84 against 91.21; 1.5 points are ours", of="us")

names = {"static": "static exponential", "one_peer": "one-peer exponential"}
figure = {"x": "name", "y": accuracy, "published": False}
scales = {
    "smoke": {"task.variant": "subset", "task.model": "mlp", "task.norm": "none", "task.batch": 4, "task.probe": 64, "task.validation": 64,
              "steps": 2, "evaluate_every": 1},
    "reduced": {"task.variant": "jpeg", "task.model": "resnet8", "task.batch": 32, "task.validation": 1000, "task.probe": 512,
                "schedule": "one_cycle", "precision": "bf16_mixed", "steps": 784, "evaluate_every": 98, "checkpoint_every": 128},
    "full": {"seeds": [0, 1, 2]}}
cost = {"smoke": "5 s", "reduced": "45 minutes of one core, 20 runs of 100,000 images and 8 that tune",
        "full": "6 runs and 8 that tune of 9 million images, not run here: some hours of one GPU"}
