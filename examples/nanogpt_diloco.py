"""A GPT as nanoGPT trains it: AdamW groups, warm-up, clipping, accumulation, 16 bits, torch.compile; DDP or any method.

    torchrun --nproc-per-node 2 examples/nanogpt_diloco.py --text book.txt           # ddp: the script as it was
    torchrun --nproc-per-node 2 examples/nanogpt_diloco.py diloco --text book.txt    # 25x fewer bytes
    torchrun --nproc-per-node 2 examples/nanogpt_diloco.py diloco --dtype bfloat16 --compile --text book.txt

What changes is in `prepare`: the model is not wrapped, the optimizer is a DistributedOptimizer, and it clips.
"""

import argparse
import copy
import math
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from commeff import DistributedOptimizer, compressors, methods, topologies
from commeff.experiments.tasks.language import GPT  # or yours: any nn.Module

ADAMW = partial(torch.optim.AdamW, lr=3e-3, betas=(0.9, 0.95))
METHODS = {
    "psgd": lambda n: methods.psgd(ADAMW),
    "dsgd": lambda n: methods.dsgd(ADAMW, topologies.ring(n)),
    "diloco": lambda n: methods.diloco(ADAMW, period=25),
    "mem_sgd": lambda n: methods.mem_sgd(ADAMW, compressors.TopK(ratio=0.05)),
    "power_sgd": lambda n: methods.power_sgd(ADAMW, rank=4),
}
CONTEXT, BATCH, ACCUMULATED, CLIP = 64, 8, 2, 1.0


def groups(model):
    """Matrices decay, biases and norms do not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def prepare(model, method):
    """The model to call, its optimizer, and how gradients are clipped before the step."""
    if method == "ddp":
        return DistributedDataParallel(model), ADAMW(groups(model)), lambda: clip_grad_norm_(model.parameters(), CLIP)
    strategy = METHODS[method](dist.get_world_size())
    return model, DistributedOptimizer(model, strategy, groups=groups(model), clip=CLIP), lambda: None


def rate(steps, step):
    """Of the learning rate: linear warm-up over a tenth of the steps, then a cosine."""
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else 0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(1, steps - warm))


def batch(tokens, step, place):
    """Windows of a step: a function of the step and the worker, so that a run can go on anywhere."""
    generator = torch.Generator().manual_seed(1_000_003 * step + place)
    starts = torch.randint(len(tokens) - CONTEXT - 1, (BATCH,), generator=generator)
    windows = torch.stack([tokens[start : start + CONTEXT + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def score(model, tokens, step, place):
    inputs, targets = batch(tokens, step, place)
    return cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train(method, text, steps, dtype=None, compiled=False, save=None, stop=None):
    """The model and the losses of this worker; `stop` ends it early, with a checkpoint in `save`."""
    rank = dist.get_rank()
    tokens = torch.tensor(list(text), dtype=torch.long)
    torch.manual_seed(0)
    model = GPT(vocabulary=256, layers=2, heads=4, width=64, context=CONTEXT)
    called, optimizer, clip = prepare(model, method)
    called = torch.compile(called) if compiled else called
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(rate, steps))
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    begin, losses, file = 0, [], save and save.with_suffix(f".rank{rank}")
    if file and file.exists():
        state = torch.load(file)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        begin, losses = state["step"], state["losses"]
    for step in range(begin, steps if stop is None else stop):
        optimizer.zero_grad()
        total = 0.0
        for i in range(ACCUMULATED):
            with torch.autocast("cpu", dtype) if dtype else nullcontext():
                loss = score(called, tokens, step, 10 * rank + i) / ACCUMULATED
            scaler.scale(loss).backward()
            total += loss.item()
        if method == "ddp":
            scaler.unscale_(optimizer)
        clip()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        losses.append(total)
    if file:
        named = {name: part.state_dict() for name, part in parts.items()}
        torch.save(named | {"step": step + 1, "losses": losses}, file)
    return model, optimizer, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="?", default="ddp", choices=["ddp", *METHODS])
    parser.add_argument("--text", type=Path, required=True, help="any text file; its bytes are the tokens")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], help="of autocast")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--save", type=Path, help="where the checkpoint goes, and is gone on with")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    dtype = getattr(torch, arguments.dtype) if arguments.dtype else None
    text = arguments.text.read_bytes()
    model, optimizer, losses = train(arguments.method, text, arguments.steps, dtype, arguments.compile, arguments.save)
    if isinstance(optimizer, DistributedOptimizer):
        model = optimizer.average_into(copy.deepcopy(model))
    with torch.no_grad():  # the same text: what methods do to training, not what a model learns of English
        held = torch.stack([score(model, torch.tensor(list(text)), -step, 7) for step in range(1, 9)]).mean()
    if dist.get_rank() == 0:
        sent = (
            f", {optimizer.communicator.ledger.payload_bytes / 1e6:.1f} MB a worker"
            if arguments.method != "ddp"
            else ""
        )
        print(f"{arguments.method}: loss {losses[0]:.3f} -> {held:.3f} on windows of another draw{sent}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
