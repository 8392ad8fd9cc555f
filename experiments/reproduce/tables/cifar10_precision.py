from commeff.experiments.reproduce import claim, final, within

title = "Forward passes in bfloat16 beside 32 bits, parallel SGD on CIFAR-10"
paper = "Kalamkar et al. 2019, a study of bfloat16 for deep learning training, arXiv 1905.12322"
about = """Other tables of CIFAR-10 compute in bfloat16. Here the same runs have forward passes of 8 workers under autocast and without. They
train on the exact images of CIFAR-10 that were at hand, an eighth of all, and say how far parallel SGD comes on those."""
settings = {"hyper-parameters": "the same in both"}
left_open = {
    "network and data": "ResNet-20, 8 workers of 16 images a step; 30 epochs of the exact subset",
    "rate": "0.1, as parallel SGD has it in `cifar10_top_k`; momentum 0.9, weight decay 5e-4, cosine decay"}
base = {"task": "cifar10", "task.variant": "subset", "task.norm": "batch", "task.partition": "iid", "task.batch": 16,
        "task.validation": 500, "task.probe": 1000, "task.width": 16, "workers": 8, "model": "resnet20", "steps": 1774,
        "evaluate_every": lambda c: round(c["steps"] / 4), "checkpoint_every": 200, "optimizer": "sgd",
        "optimizer.momentum": 0.9, "optimizer.weight_decay": 0.0005, "optimizer.lr": 0.1, "schedule": "cosine", "method": "psgd"}
accuracy = final("test_accuracy")
show = [accuracy, "val_accuracy", "train_loss", "test_loss", "epoch"]
grid = [{"name": "bf16", "precision": "bf16_mixed"}, {"name": "fp32"}]

def claims(r):
    yield claim(within(accuracy(r.bf16), accuracy(r.fp32), 0.015), "bfloat16 ends within 1.5 points of 32 bits",
                "section 4: the same accuracy with the same hyper-parameters; 1.5 points are ours")
    yield claim(accuracy(r.bf16) >= 0.65, "parallel SGD reaches 65 %", "methods are compared where parallel SGD learns", of="us")

names = {"bf16": "bfloat16", "fp32": "32 bits"}
figure = {"x": "epoch", "y": "val_accuracy"}
scales = {"smoke": {"task.variant": "auto", "task.batch": 2, "task.validation": 20, "task.probe": 32, "steps": 1}}
cost = {"smoke": "5 s", "full": "an hour of one core"}
