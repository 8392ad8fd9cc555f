from commeff.experiments.reproduce import claim, final, order

title = "DiLoCo against data parallelism, by the size of the model and the number of replicas"
paper = "Charles et al. 2025, communication-efficient language model training scales reliably: scaling laws for DiLoCo, arXiv 2503.09799"
about = """The paper trains models of 35 million to 10 billion parameters on 20 tokens a parameter, and finds that DiLoCo's loss is the
further above that of data parallelism the more replicas there are, and the nearer the larger the model. Here the same is asked of Llamas
hundreds of times smaller than its smallest, which two cores train on as many tokens a parameter: whether the trend goes on downwards. All
settings are the paper's but for sizes, text and batch; rates are tuned as it tunes them, inner and outer together, for every number of
replicas M."""
settings = {"H": "30 where not said", "tokens": "20 a parameter", "inner": "AdamW (0.9, 0.99), weight decay 1/T, gradients clipped to norm 1",
            "outer": "Nesterov momentum 0.9, the rate tuned", "schedule": "warm-up, cosine decay to 5 %"}
left_open = {"models": "Llamas of 43,080 and 127,424 parameters; tokens are bytes, 256 of them, embeddings tied",
             "text": "WikiText-2, windows of 64 bytes", "batch": "1,024 tokens a step over all replicas, for every size; the paper tunes it",
             "warm-up": "5 % of the steps; the paper's 1,000 steps are more than the smallest run has",
             "streaming": "fragments of one layer, one step late, mixing 0.5, messages of 4 bits",
             "rates": "twelve pairs of an inner and an outer rate, twelve rates of data parallelism, on a seed of its own and at the full length"}
parameters = ["rates"]  # inner / outer

def inner(c):
    return float(c["rates"].split(" / ")[0])

def outer(c):
    return float(c["rates"].split(" / ")[1])

def length(c):
    return round(20 * c.task.d / 1024)

base = {"task": "language", "task.data": "wikitext-2", "optimizer": "adamw", "optimizer.lr": inner, "optimizer.betas": [0.9, 0.99],
        "optimizer.weight_decay": lambda c: 1 / c["steps"], "clip": 1.0, "steps": length, "task.batch": lambda c: 16 / c["workers"],
        "schedule": "one_cycle", "schedule.pct_start": 0.05, "schedule.div_factor": 20, "schedule.final_div_factor": 1,
        "evaluate_every": lambda c: round(c["steps"] / 8), "checkpoint_every": 500}
seeds = [*range(5, 15)]  # fresh ones: seeds 0 to 4 left six of eleven claims open, and are not among these
tune = {"over": "rates", "by": "val_loss", "seeds": [100]}
loss = final("test_loss")
show = [loss, "val_loss", "payload_bytes"]
SMALL, MIDDLE = "llama_40k", "llama_130k"

def pairs(inners, outers):
    return {"rates": [f"{i} / {o}" for i in inners for o in outers]}

PSGD = [{"name": "psgd", "method": "psgd", "workers": 1, "model": SMALL, **pairs([0.0028, 0.004, 0.0056, 0.0067, 0.008, 0.0095, 0.0113, 0.0135, 0.016, 0.0226, 0.032, 0.045], [1])},
        {"name": "psgd", "method": "psgd", "workers": 1, "model": MIDDLE, **pairs([0.001, 0.0014, 0.002, 0.0024, 0.0028, 0.0034, 0.004, 0.0056, 0.008, 0.0113, 0.016, 0.0226], [1])}]
_diloco = {"method": "diloco", "method.outer.lr": outer}
_wide, _middle, _high = [0.004, 0.008, 0.016, 0.032], [0.2, 0.4, 0.8], [0.4, 0.8, 1.2]

def of_workers(workers, model, inners, outers):
    return {"name": "diloco", **_diloco, "method.period": 30, "workers": workers, "model": model, **pairs(inners, outers)}

# With _wide and _middle for every case of the smaller model seven of eleven best pairs lay at an edge; these grids have the best inside.
DILOCO = [of_workers([1, 4], SMALL, _wide, _middle), of_workers(2, SMALL, [0.008, 0.016, 0.032, 0.064], _high), of_workers(8, SMALL, _wide, _high),
          of_workers([1, 2, 4, 8], MIDDLE, [0.001, 0.002, 0.004, 0.008], _middle)]
_often, _rarely = ({"name": name, **_diloco, "method.period": period, "model": SMALL} for name, period in (("often", 5), ("rarely", 100)))
grid = [*PSGD, *DILOCO, {**_often, "workers": [1, 4], **pairs([0.016, 0.032, 0.064, 0.128], [0.05, 0.1, 0.2])},
        {**_rarely, "workers": 1, **pairs(_wide, _middle)}, {**_rarely, "workers": 4, **pairs(_wide, _high)},
        {"name": "streaming", "method": "streaming_diloco", "method.period": 30, "method.fragments": 2, "method.exchange.delay": 1, "method.exchange.mixing": 0.5,
         "method.exchange.bits": 4, "method.outer.lr": outer, "workers": 4, "model": SMALL, **pairs(_wide, _high)}]

def claims(r):
    for at in r.each("model", of="psgd"):
        yield claim(order(*(loss(at.diloco(workers=m)) for m in (1, 2, 4, 8))), "DiLoCo's loss grows with the number of replicas",
                    "section 4.1: the loss grows with M at every size")
        yield claim(loss(at.diloco(workers=1)) <= loss(at.psgd), "with one replica DiLoCo ends no higher than data parallelism",
                    "section 4.1: M = 1 is at least as good")
    for m in (1, 2, 4, 8):
        large, small = (loss(r.diloco(model=model, workers=m)) / loss(r.psgd(model=model)) for model in (MIDDLE, SMALL))
        yield claim(large < small, f"the gap of {m} replica{'s' * (m > 1)} is smaller for the larger model", "table 4: the gap falls with N at every M")
    of = {"model": SMALL, "workers": 4}
    yield claim(order(loss(r.often(**of)), loss(r.diloco(**of)), loss(r.rarely(**of))), "DiLoCo's loss grows with H, 4 replicas",
                "section 4.2: less frequent averages, higher loss")
    alone = {"model": SMALL, "workers": 1}
    yield claim(loss(r.often(**alone)) < loss(r.diloco(**alone)), "one replica is nearer to data parallelism at H = 5 than at H = 30",
                "whether few outer steps, 28 at H = 30, are the reason of the gap", of="us")
    yield claim(loss(r.streaming) <= 1.005 * loss(r.diloco(**of)), "streaming in 4 bits ends within 0.5 % of DiLoCo",
                "arXiv 2501.18512, table 5: 3.53 beside 3.54 with 2 replicas")

names = {"often": "DiLoCo, H = 5", "diloco": "DiLoCo, H = 30", "rarely": "DiLoCo, H = 100", "streaming": "streaming DiLoCo, 4 bits"}
figure = {"x": "workers", "y": loss, "log": "x", "only": ["psgd", "diloco", "often", "rarely", "streaming"], "panels": {"model": "{}"}, "x_title": "replicas"}
scales = {"smoke": {"task.data": "tinyshakespeare", "steps": 30, "evaluate_every": 15, "task.probe": 256, "keep": {"workers": [1, 2]}}}
cost = {"smoke": "10 s", "full": "5 hours of one core: 330 runs"}
