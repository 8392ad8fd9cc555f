from commeff.experiments.reproduce import claim, final, printed, within

title = "Hours of BERT-Large by P-SGD and gossip on 8 servers of 8 V100, modelled"
paper = """Chen, Yuan et al. 2021, Gossip-PGA, arXiv 2105.09080, as the lecture prints it; the same hours in Ying, Yuan et al., Faster Learning
over Networks and BlueFog, slide 23 (2020)"""
about = """Nothing is trained, and nothing is fitted to these two numbers. The bandwidth is the one that `gossip_time` has from 150 ms;
computing is 6 FLOPs a parameter and token at that share of the 16-bit peak which `gossip_time`'s computing is of the 32-bit one; steps
and tokens are those of Devlin et al.: 256 million sequences of 166 tokens in the mean, 64 a GPU. The lecture calls the second row
D-SGD, the slides neighbor-averaging SGD: it is taken as one-peer gossip. Two readings are modelled. In one nothing overlaps. In
the other buckets of gradients leave during backward, and parameters travel while the gradient is computed. The second was added after
the printed hours had been seen."""
settings = {"model": "BERT-Large, 330 million parameters", "servers": 8}
left_open = {"steps": 62500, "computing": "0.689 s a step", "gradients": "32 bits", "overlap": "both readings"}
measure = "modelled"
cluster = {"cluster": "clusters/v100_servers.yaml", "step_seconds": 0.689, "parameters": 330e6}
base = {"task": "quadratic", "task.dtype": "float32", "workers": 8, "steps": 62500, "bucket_mb": 0}
hours = final("modelled_hours")
show = ["communication_ms", "exposed_ms", "step_seconds", hours]
names = {"hidden": "parallel SGD, overlapped", "beside": "gossip, overlapped"}
grid = [{"name": "psgd", "method": "psgd"}, {"name": "hidden", "method": "psgd", "bucket_mb": 25},
        {"name": "gossip", "method": "dsgd", "topology": "one_peer_exponential"},
        {"name": "beside", "method": "dsgd", "topology": "one_peer_exponential", "method.order": "awc"}]
RATIO = """Where nothing overlaps, one bandwidth for both methods cannot give the printed ratio of 1.94: without any computing the model's is
2 (n - 1) / n = 1.75 on 8 servers. It can be reached where gossip hides behind more of the computing than the all-reduce does. Whether a
bandwidth from messages of 102 MB holds for 1.3 GB is not known."""
tolerance = {"kind": "relative", "by": 0.15}
numbers = [printed(name, hours, value, "the lecture's BERT table; slide 23", because=RATIO)
           for name, value in (("psgd", 59.02), ("hidden", 59.02), ("gossip", 30.4), ("beside", 30.4))]

def claims(r):
    source = "59.02 against 30.4 hours, the lecture's BERT table; slide 23; 0.2 is ours"
    yield claim(within(hours(r.psgd) / hours(r.gossip), 1.94, 0.2), "parallel SGD takes 1.94 times as long, nothing overlaps", source, RATIO)
    yield claim(within(hours(r.hidden) / hours(r.beside), 1.94, 0.2), "parallel SGD takes 1.94 times as long, both overlap", source, RATIO, of="us")

figure = {"x": "name", "y": hours, "y_title": "hours of BERT-Large"}
scales = {"smoke": {"steps": 22}}
cost = {"smoke": "5 s", "full": "5 s"}
