"""Throughput of a transformer against workers: each point is `commeff plan`'s step of the same policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from commeff.experiments.config.plugins import Choice
from commeff.experiments.planning.plan import exposed, fit, policy_words
from commeff.experiments.planning.question import Question, read_question
from commeff.experiments.planning.scale.modelled import Scaling, ScalingPoint
from commeff.experiments.planning.scale.setting import ScalingSetting
from commeff.experiments.planning.worker_words import MethodWords, read_method
from commeff.planner import Policy
from commeff.planner.worker_method import PLAIN

CHOSEN = ("gpus", "data", "workers", "global_batch", "tokens", "stages")  # by the number of workers, or of no use
SETTLED = dict.fromkeys(CHOSEN, "the number of workers says how many GPUs and sequences") | dict.fromkeys(
    ("cluster", "bandwidth"), "--cluster says where, a name or a YAML file with its bandwidth"
)
SETTLED["framework"] = "--workers are replicas that talk; give fields such as overlap= instead"
EACH = 2  # sequences of a GPU in weak scaling, at least


@dataclass(frozen=True)
class PlannedModel:
    """A transformer under a policy, of which the number of workers is left open.

    Attributes
    ----------
    question : model, cluster and policy.
    """

    question: Question

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.question.name

    @property
    def policy(self) -> str:
        """The policy in words, without the ranks."""
        words = policy_words(Policy(**self.question.policy)).split()
        return " ".join(word for word in words if word.partition("=")[0] != "data")

    def point(self, setting: ScalingSetting, scaling: Scaling, method: MethodWords, n: int) -> ScalingPoint | None:
        """n workers, which share each a batch of `EACH` sequences a GPU, or all the global batch; None if the policy is
        not possible there, or does not fit.
        """
        try:
            policy, one = self._of(setting, method, n), self._of(setting, method, 1)
            local_batch = self._batch(setting, one)
            first, batch = (local_batch, local_batch * n) if scaling == "weak" else (setting.global_batch,) * 2
            prediction = self._asked(setting, policy, batch).predict(policy)
            single = self._asked(setting, one, first).predict(one)
        except ValueError:
            return None
        if not prediction.fits:
            return None
        return ScalingPoint(
            setting,
            self.name,
            "sequences",
            scaling,
            str(method),
            n,
            batch=batch / n,
            compute=prediction.step_seconds - exposed(prediction),
            step=prediction.step_seconds,
            alone=first / single.step_seconds,
        )

    def refusal(self, setting: ScalingSetting, method: MethodWords, n: int) -> str:
        """Why there is no point of n workers."""
        try:
            policy = self._of(setting, method, n)
            question = self._asked(setting, policy, n * self._batch(setting, self._of(setting, method, 1)))
            return fit(question, policy, question.predict(policy))
        except ValueError as error:
            return str(error)

    def _of(self, setting: ScalingSetting, method: MethodWords, n: int) -> Policy:
        fields: dict[str, Any] = dict(self.question.policy)
        ranks = fields.get("tensor", 1) * fields.get("pipeline", 1)
        if setting.inside % ranks:
            raise ValueError(
                f"tensor x pipeline must divide the {setting.inside} GPUs of a worker, got {ranks}; take --worker node"
            )
        way = read_method(method.words, method.plugins)
        workers = 1 if way == PLAIN or n == 1 else n
        return Policy(**fields, data=n * setting.inside // ranks, workers=workers, method=way if workers > 1 else PLAIN)

    def _batch(self, setting: ScalingSetting, one: Policy) -> int:
        """Sequences of one worker."""
        step = one.data * one.micro_batch
        return step * max(1, -(-EACH * setting.inside // step))

    def _asked(self, setting: ScalingSetting, policy: Policy, batch: int) -> Question:
        return replace(self.question, cluster=setting.cluster.with_gpus(policy.gpus), global_batch=batch)


def read_planned(words: Sequence[str], cluster: str, plugins: Sequence[Choice] = ()) -> PlannedModel | None:
    """The model of a command line, if its words name one.

    Parameters
    ----------
    words : `key=value` of model and policy.
    cluster : as of --cluster.
    plugins : choices beside the built-in ones.
    """
    if not words:
        return None
    for word in words:
        key = word.partition("=")[0]
        if key in SETTLED:
            raise ValueError(f"{word} must be left out: {SETTLED[key]}")
    return PlannedModel(read_question([*words, f"cluster={cluster}"], plugins))
