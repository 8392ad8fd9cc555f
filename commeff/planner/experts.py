"""Layers with experts (arXiv 2006.16668, 2101.03961): the feed-forwards that stand in one, and the exchange of tokens.

E expert ranks hold n/E experts each, in every layer that has any. They are neighbours among the context x data /
workers ranks of one worker, as in DeepSpeed-MoE (arXiv 2201.05596) and Megatron-LM, so E divides these and n; each
tensor rank has its part of every expert that its expert rank holds. Gradients of an expert are averaged, and its states
shared by ZeRO, over the context x data / (workers E) ranks that hold it, all else over all ranks of the worker.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commeff.cluster import collectives
from commeff.planner.policies import Count, Numbers, Policies, PolicySetting

ROWS = 16  # of an expert's input: it is padded to a multiple, as kernels for fp8 ask


class FeedForward(NamedTuple):
    """Equal feed-forwards that a rank computes at once.

    Attributes
    ----------
    rows : tokens of each of them.
    width : inner width on one tensor rank.
    number : of them.
    """

    rows: Numbers
    width: Numbers
    number: Count = 1


def feed_forwards(policies: Policies, setting: PolicySetting, routed: bool) -> list[FeedForward]:
    """Those of a layer with experts, if `routed`, or of a dense one: every expert gets `capacity` times its even share
    b s k E / (c n) of the tokens that E ranks send, but never more than all.
    """
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    if not routed:
        return [FeedForward(tokens, model.ffn_width / t)]
    most = min(model.capacity * model.active_experts / model.experts, 1.0)
    rows = ROWS * np.ceil(tokens * policies.expert * most / ROWS)
    experts = [FeedForward(rows, model.expert_width / t, model.experts / policies.expert)]
    shared = [FeedForward(tokens, model.shared_experts * model.expert_width / t)]
    return experts + shared * (model.shared_experts > 0)


def routed_tokens(policies: Policies, setting: PolicySetting) -> Numbers:
    """Copies of tokens that all experts of a rank compute in one layer and micro-batch."""
    rows, _, experts = feed_forwards(policies, setting, routed=True)[0]
    return rows * experts


def exchange_seconds(policies: Policies, setting: PolicySetting) -> Numbers:
    """Tokens go to the ranks of their experts and come back, two all-to-alls of b s k h numbers and the padding, each
    way; each tensor rank sends its part, which the receivers gather (`tensor_seconds`).
    """
    size = policies.wide * routed_tokens(policies, setting) * setting.model.hidden / policies.tensor
    return 2 * collectives.all_to_all(policies.exchanging(setting.cluster), size)
