"""A space too big to enumerate: the policy of a pipeline, and the layers of every stage, chosen together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.planner import Model, Policy, predict
from commeff.planner.policies import Mask
from commeff.planner.search.chain import dynamic
from commeff.planner.search.everything import chain, cuttable, scan
from commeff.planner.search.guided import Problem, penalised
from commeff.planner.search.space import AXES, Rows, Space, Values

CHOSEN = 7  # of the axes of a space, the first: no workers, one way
STAGES = 16  # the longest pipeline
LEVELS = 5  # weights that a stage may have: 8, 9, 10, 11, 12
MODEL = Model(layers=48, hidden=6144, heads=48, sequence=2048, vocab=256_000)
CLUSTER, GLOBAL_BATCH = ("a100_selene", 64), 128


class Joint(Problem):
    """Rows: seven axes of `Space`, then a weight for each stage. A stage gets layers in proportion to its weight.

    Only 1F1B and GPipe pipelines of 2 to 16 stages are possible. A policy is priced by `predict`, that is by the event
    loop over its stages. Weights of stages that a pipeline does not have mean nothing.
    """

    def __init__(self) -> None:
        name, gpus = CLUSTER
        self.space = Space(MODEL, Cluster.named(name, gpus), GLOBAL_BATCH)
        self.sizes = (*self.space.sizes[:CHOSEN], *(LEVELS,) * STAGES)
        self.pipelines = np.array([value["pipeline"] for value in self.space.values["pipeline"]])

    def _plain(self, rows: Rows) -> Rows:
        return np.hstack([rows[:, :CHOSEN], np.zeros((len(rows), len(AXES) - CHOSEN), dtype=np.int64)])

    def possible(self, rows: Rows) -> Mask:
        """Rows whose pipelines can be cut."""
        plain = self._plain(rows)
        stages = self.pipelines[rows[:, AXES.index("pipeline")]]
        return self.space.possible(plain, uneven=True) & cuttable(self.space.policies(plain)) & (stages <= STAGES)

    def settle(self, rows: Rows) -> Rows:
        """Rows without the weights of stages that do not exist."""
        stages = self.pipelines[rows[:, AXES.index("pipeline")]]
        used = np.arange(len(self.sizes)) - CHOSEN < stages[:, None]
        return np.where(used, rows, 0)

    def price(self, rows: Rows) -> Values:
        """Price each row by itself, as an event loop would."""
        predictions = [predict(MODEL, self.policy(row), self.space.cluster, global_batch=GLOBAL_BATCH) for row in rows]
        seconds = np.array([one.step_seconds for one in predictions])
        memory = np.array([one.memory_bytes for one in predictions])
        return penalised(seconds, memory / self.space.cluster.gpu.memory_bytes)

    def policy(self, row: Rows) -> Policy:
        """The policy that a row stands for."""
        policy = self.space.policy(self._plain(row[None])[0])
        return replace(policy, stages=shares(MODEL.layers, row[CHOSEN : CHOSEN + policy.pipeline] + 8))

    @property
    def count(self) -> int:
        """How many policies there are."""
        rows = np.vstack(list(self.space.blocks(uneven=True)))
        rows = np.unique(rows[:, :CHOSEN], axis=0)
        rows = rows[self.possible(np.hstack([rows, np.zeros((len(rows), STAGES), dtype=np.int64)]))]
        return sum(LEVELS ** int(self.pipelines[row[AXES.index("pipeline")]]) for row in rows)

    def best_known(self) -> float:
        """The fastest of the most promising policies, each with its layers cut by dynamic programming: its logarithm.

        The cuts are exact for the formula of `commeff.planner.search.chain`, not for the event loop, so a search may
        find better ones.
        """
        seconds = []
        for row in scan(self.space, 1).to_cut:
            policy = self.space.policy(row)
            cuts = dynamic(chain(MODEL, policy, self.space.cluster, GLOBAL_BATCH))
            prediction = predict(MODEL, replace(policy, stages=cuts), self.space.cluster, global_batch=GLOBAL_BATCH)
            seconds.append(prediction.step_seconds if prediction.fits else np.inf)
        return float(np.log(min(seconds)))


def shares(layers: int, weights: NDArray[np.int64]) -> tuple[int, ...]:
    """Layers in proportion to weights, at least one each: what is left over goes to the largest remainders.

    >>> shares(10, np.array([10, 10, 8]))
    (4, 3, 3)
    """
    exact = 1 + (layers - len(weights)) * weights / weights.sum()
    counts = np.floor(exact).astype(int)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: layers - counts.sum()]] += 1
    return tuple(int(n) for n in counts)
