"""Predict a training step on a cluster: seconds, memory and bytes of a policy, from counted work and seven constants;
and search for the best policy.

>>> from commeff.cluster import Cluster
>>> from commeff.planner import Model, Policy, predict
>>> model = Model(layers=48, hidden=8192, heads=64, sequence=2048, vocab=51200)
>>> policy = Policy(tensor=8, pipeline=2, data=32, micro_batch=4, recompute="full")
>>> predict(model, policy, Cluster.named("a100_selene", gpus=512), global_batch=1536).fits
True
"""

from commeff.planner.constants import MEASURED, Constants
from commeff.planner.estimate import StepEstimate, estimate
from commeff.planner.frameworks import FRAMEWORKS, Framework
from commeff.planner.model import Model
from commeff.planner.policies import Policies
from commeff.planner.policy import Policy
from commeff.planner.predict import Prediction, predict, stage_memory, timeline
from commeff.planner.search import Plan, search
from commeff.planner.timeline import Timeline
from commeff.planner.worker_method import WorkerMethod

__all__ = [
    "FRAMEWORKS",
    "MEASURED",
    "Constants",
    "Framework",
    "Model",
    "Plan",
    "Policies",
    "Policy",
    "Prediction",
    "StepEstimate",
    "Timeline",
    "WorkerMethod",
    "estimate",
    "predict",
    "search",
    "stage_memory",
    "timeline",
]
