from commeff.experiments.reproduce import claim, final, printed, within

title = "Loss of a language model by P-SGD, D-SGD, Gossip-PGA and Gossip-AGA, beside modelled hours"
paper = "Chen, Yuan et al. 2021, Gossip-PGA, arXiv 2105.09080: BERT-Large on 8 servers of 8 V100, as the lecture prints it"
about = """A GPT of 119,104 parameters is trained on tiny Shakespeare. Hours are those of 62,500 steps as if each computed BERT-Large's
minibatch and sent its 330 million numbers, as `bert_time` has them; what Gossip-AGA sends depends on its losses, so that it has bytes and
no hours here."""
settings = {"model": "BERT-Large", "workers": "8 servers", "loss of P-SGD": "1.75 after 59.02 hours",
            "of D-SGD": "1.77 after 30.4 hours"}
left_open = {"data and network": "tiny Shakespeare, GPT of two layers, 4 windows of 64 bytes a worker and step",
             "periods": "PGA 6, the paper's; AGA from 4 on, after 50 steps",
             "rate": "AdamW, cosine, the best of four on a seed of its own, for each method"}
cluster = {"cluster": "clusters/v100_servers.yaml", "step_seconds": 0.689, "parameters": 330e6}
base = {"task": "language", "task.batch": 4, "workers": 8, "steps": 300, "evaluate_every": 75, "optimizer": "adamw", "schedule": "cosine",
        "bucket_mb": 0, "checkpoint_every": 0}
tune = {"over": "optimizer.lr", "by": "val_loss", "seeds": [100]}
loss, sent, steps = final("val_loss"), final("wire_bytes"), final("steps")
show = [loss, final("modelled_hours") * 62500 / steps, sent / steps, "consensus_distance"]
_rates, _peer = {"optimizer.lr": [0.0003, 0.001, 0.003, 0.01]}, {"topology": "one_peer_exponential"}
grid = [{"name": "psgd", "method": "psgd", **_rates}, {"name": "dsgd", "method": "dsgd", **_peer, **_rates},
        {"name": "pga", "method": "gossip_pga", **_peer, **_rates},
        {"name": "aga", "method": "gossip_aga", "method.warmup": 50, **_peer, **_rates}]
comparable = {"task.data": "Wikipedia and BookCorpus"}
numbers = [printed("psgd", loss, 1.75, "gossip.csv row 7"), printed("dsgd", loss, 1.77, "gossip.csv row 8")]
GAP = """One-peer exponential graphs of 8 workers average exactly in three steps, so that gossip has little disagreement for periodic
averages to remove: all three end within 0.03 % of each other, and 4.7 % above parallel SGD. 300 steps end at the level of bigrams."""

def claims(r):
    yield claim(loss(r.psgd) < loss(r.dsgd), "plain gossip ends higher", "arXiv 2105.09080: plain gossip ends higher")
    yield claim(within(loss(r.pga), loss(r.psgd), share=0.02), "Gossip-PGA ends where parallel SGD does",
                "the same paper: periodic averages close the gap; 2 % is ours", GAP)
    yield claim(within(loss(r.aga), loss(r.psgd), share=0.02), "so does Gossip-AGA", "the same paper, with a period that adapts; 2 % is ours", GAP)
    yield claim(sent(r.aga) < sent(r.pga), "Gossip-AGA sends less than Gossip-PGA", "arXiv 2105.09080: the period grows as the loss falls; on "
                "ImageNet one step in eleven is a global average, in Gossip-PGA one in six",
                """The period starts at 4 and grows as the loss falls. Over 300 steps it falls too little: one step in 4.8 is a global average,
                in Gossip-PGA one in six.""")

names = {"pga": "Gossip-PGA", "aga": "Gossip-AGA"}
figure = {"x": "wire_bytes", "y": "val_loss", "log": "x", "published": ""}
scales = {"smoke": {"steps": 2, "evaluate_every": 1, "task.probe": 256, "keep": {"lr": 0.003}}, "reduced": {},
          "full": {"model": "llama_300k", "steps": 2000, "evaluate_every": 200}}
cost = {"smoke": "5 s", "reduced": "10 minutes of one core, 28 runs of 300 steps", "full": "2 hours of one core, not run: still no BERT"}
