"""A question to the planner: `key=value` words of `commeff plan` as a model, a cluster, a batch and policy fields.

What the worker axis does is said by the words of `commeff train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any

import yaml

from commeff import require
from commeff.cluster import Cluster, names
from commeff.cluster.hardware import quantity
from commeff.experiments.config.method_words import check_words
from commeff.experiments.config.plugins import Choice
from commeff.experiments.planning.models import named, sized
from commeff.experiments.planning.worker_words import PARTS, is_method_word, read_method
from commeff.planner import FRAMEWORKS, MEASURED, Constants, Model, Policies, Policy, Prediction, predict
from commeff.planner.frameworks import IDEAL
from commeff.planner.policies import CHOICES, STATES
from commeff.planner.worker_method import PLAIN

SHAPE = tuple(field.name for field in fields(Model))
POLICY = tuple(field.name for field in fields(Policy))
OTHERS = ("model", "framework", "parameters", "cluster", "gpus", "bandwidth", "global_batch", "tokens")
KEYS = (*dict.fromkeys((*OTHERS, *SHAPE, *POLICY, *PARTS)), "period", "degree")
OPTIMIZER = "optimizer must be left out of a plan, got {!r}: the planner counts Adam's states whatever takes the steps"
SEARCHED = ("precision", "overlap")  # what a search does not choose
OF_STAGE_3 = ("unit", "prefetch", "reshard", "fp32_parameters")
NAMES = ("model", "framework", "cluster", "bandwidth", *CHOICES, "precision", "collective")
BALANCED = "balanced"  # stages that a pipeline is cut into by what each costs
SWITCHES = {"true": True, "false": False, "none": None, "null": None}


@dataclass(frozen=True)
class Question:
    """A question to the planner.

    Attributes
    ----------
    name : of the model.
    model, cluster : what is trained, and where.
    global_batch : sequences of a step.
    policy : the given fields of a policy.
    tokens : of the whole training run, or None.
    framework : one of `FRAMEWORKS`, which says what `policy` leaves open, or None.
    constants : what a real machine reaches of its data sheet.
    """

    name: str
    model: Model
    cluster: Cluster
    global_batch: int
    policy: dict[str, Any]
    tokens: float | None
    framework: str | None = None
    constants: Constants = MEASURED

    @property
    def is_bound(self) -> bool:
        """Whether predictions are the least that a data sheet allows, and no machine reaches them."""
        return self.constants == IDEAL

    def predict(self, policy: Policy) -> Prediction:
        """What a policy costs."""
        return predict(self.model, policy, self.cluster, global_batch=self.global_batch, constants=self.constants)

    def one(self) -> Policy:
        """The policy. Unless given, data-parallel ranks are all that are left, and each is a worker if any method but
        psgd is.
        """
        policy_fields = {**self._defaults(self.policy.get("zero")), **self.policy}
        splits = {key: policy_fields.get(key, 1) for key in ("tensor", "context", "pipeline")}
        if "data" not in policy_fields and all(type(ranks) is int and ranks > 0 for ranks in splits.values()):
            shown = {key: ranks for key, ranks in splits.items() if ranks > 1 or key != "context"}
            policy_fields["data"], rest = divmod(self.cluster.gpus, prod(splits.values()))
            if rest:
                raise ValueError(
                    f"{' x '.join(shown)} must divide the {self.cluster.gpus} GPUs, got "
                    f"{' x '.join(map(str, shown.values()))}"
                )
        if policy_fields.get("method", PLAIN) != PLAIN:
            policy_fields.setdefault("workers", policy_fields.get("data", 1))
        stages = policy_fields.pop("stages", None)
        policy = self._allowed(Policy(**policy_fields))
        return replace(policy, stages=self._balanced(policy) if stages == BALANCED else stages)

    def _balanced(self, policy: Policy) -> tuple[int, ...] | None:
        """The layers of each stage that make a step the shortest, embedding and head counted; None: as many on each."""
        from commeff.planner.search.chain import dynamic
        from commeff.planner.search.everything import chain, cuttable

        if not cuttable(Policies.of([policy])).all():
            raise ValueError(
                f"stages={BALANCED} must be of a pipeline with schedule=1f1b or gpipe, got pipeline={policy.pipeline} "
                f"schedule={policy.schedule}"
            )
        model, ones = self.model, (1,) * (policy.pipeline - 1)
        some = replace(policy, stages=(*ones, max(model.layers - len(ones), 1)))
        some.check(model, self.cluster, self.global_batch)
        cuts = dynamic(chain(model, policy, self.cluster, self.global_batch, self.constants))
        if cuts is None:
            raise ValueError(f"stages={BALANCED} must fit in memory, got no cut that does; share or recompute more")
        return cuts if len(set(cuts)) > 1 else None

    def replaced(self, policy: Policy, **changes: Any) -> Policy:
        """The policy with other fields, and where one of them is `zero`, with what the framework does at that stage."""
        zero = changes.get("zero", policy.zero)
        if zero != policy.zero:
            whole = {name: getattr(Policy, name) for name in OF_STAGE_3}
            left = {name: value for name, value in self._defaults(zero).items() if name not in self.policy}
            changes = {**whole, **left, **changes}
        return self._allowed(replace(policy, **changes))

    def _defaults(self, zero: Any) -> dict[str, Any]:
        """What the framework says that is not given."""
        if self.framework is None or zero not in (None, 0, 1, 2, 3):
            return {}
        precision = self.policy.get("precision", Policy.precision)
        require.one_of(STATES, precision=precision)
        return FRAMEWORKS[self.framework].fields(precision, zero)

    def _allowed(self, policy: Policy) -> Policy:
        """The policy, if the framework runs it."""
        for refusal in FRAMEWORKS[self.framework].refusals if self.framework else ():
            if refusal.holds(Policies.of([policy])).any():
                raise ValueError(refusal.sentence(policy))
        return policy


def read_question(settings: Sequence[str], plugins: Sequence[Choice] = ()) -> Question:
    """Read the words; what the worker axis does is said as in `commeff train`.

    Parameters
    ----------
    settings : `key=value`.
    plugins : methods, compressors and topologies beside the built-in ones.

    >>> question = read_question(["model=gpt3-175b", "cluster=a100_selene", "gpus=1024", "tensor=8", "pipeline=16"])
    >>> question.one().data, question.global_batch
    (8, 2048)
    """
    method = [setting for setting in settings if is_method_word(setting)]
    values = dict(read_word(setting) for setting in settings if not is_method_word(setting))
    if method:
        values["method"] = read_method(method, plugins)
        check_words(getattr(values["method"], "words", ()), plugins)
    policy = {key: values[key] for key in POLICY if key in values}
    name, model = _model(values)
    cluster = _cluster(values, policy)
    tokens = values.get("tokens")
    if tokens is not None and not (type(tokens) in (int, float) and 0 < tokens < float("inf")):
        raise ValueError(f"tokens must be a number above 0, such as tokens=300e9, got {tokens!r}")
    batch = values.get("global_batch", _batch(cluster.gpus))
    framework = values.get("framework")
    if framework is None:
        return Question(name, model, cluster, batch, policy, tokens)
    require.one_of(FRAMEWORKS, framework=framework)
    return Question(name, model, cluster, batch, policy, tokens, framework, FRAMEWORKS[framework].constants)


def read_file(path: Path) -> list[str]:
    """The settings of a YAML file of `KEY: VALUE`, as words."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ValueError("must be YAML, such as tensor: 8") from None
    if not isinstance(content, dict) or any(isinstance(value, dict) for value in content.values()):
        raise ValueError("must hold lines of KEY: VALUE, such as tensor: 8")
    return [
        f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}" for key, value in content.items()
    ]


def read_word(setting: str) -> tuple[str, Any]:
    """A key and its value.

    >>> read_word("tokens=300e9"), read_word("stages=3,3,2"), read_word("sequence_parallel=true")
    (('tokens', 300000000000.0), ('stages', (3, 3, 2)), ('sequence_parallel', True))
    """
    key, equals, text = setting.partition("=")
    if not equals:
        raise ValueError(f"settings must be key=value, such as model=gpt3-175b, got {setting!r}")
    if key.split(".")[0] == "optimizer":
        raise ValueError(OPTIMIZER.format(setting))
    require.one_of(KEYS, key=key)
    if text.lower() in SWITCHES and key not in NAMES:
        return key, SWITCHES[text.lower()]
    if key == "stages" and text != BALANCED:
        return key, tuple(read_number(key, part) for part in text.strip("()[] ").split(","))
    if key in (*NAMES, "stages"):
        return key, text
    return key, read_number(key, text)


def read_number(key: str, text: str) -> int | float:
    """A whole number where it is one; tokens may be written as 300e9.

    >>> read_number("gpus", "8"), read_number("tokens", "2e12")
    (8, 2000000000000.0)
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{key} must be a number, got {text!r}") from None


def _model(values: dict[str, Any]) -> tuple[str, Model]:
    """The model by name or by how many parameters it has, with other sizes where they are given; or by all sizes."""
    shape = {key: values[key] for key in SHAPE if key in values}
    if "parameters" in values:
        if "model" in values:
            raise ValueError("parameters must be left out with a named model, got both: the name says how many it has")
        return f"a GPT of {values['parameters']:.3g} parameters", replace(sized(values["parameters"]), **shape)
    if "model" in values:
        return values["model"], replace(named(values["model"]), **shape)
    missing = [key for key in ("layers", "hidden", "heads", "sequence", "vocab") if key not in shape]
    if missing:
        raise ValueError(
            f"model must be named or have all sizes, got no {' '.join(missing)}: a model is its shape; "
            "give such as model=gpt3-175b, or parameters=7e9"
        )
    return "model", Model(**shape)


def _cluster(values: dict[str, Any], policy: dict[str, Any]) -> Cluster:
    """The cluster by name or file, with the GPUs that are given or that the policy has."""
    gpus = values.get("gpus")
    if gpus is None:
        sizes = [policy.get(key, 1) for key in ("tensor", "context", "pipeline", "data")]
        whole = all(type(size) is int and size > 0 for size in sizes)
        gpus = prod(sizes) if whole and any(size > 1 for size in sizes) else None
    name = values.get("cluster", "a100_selene")
    path = Path(name)
    is_file = name not in names() and (path.suffix in (".yaml", ".yml") or path.is_file())
    cluster = Cluster.load(path, gpus) if is_file else Cluster.named(name, gpus)
    if "bandwidth" not in values:
        return cluster
    return cluster.with_inter(bandwidth=quantity("bandwidth", values["bandwidth"], "bytes/s"))


def _batch(gpus: int) -> int:
    """A global batch that every layout can have: two sequences for each GPU, at least 64 in all.

    >>> _batch(1024), _batch(24)
    (2048, 72)
    """
    return gpus * max(2, -(-64 // gpus))


def planning_words(settings: Sequence[str]) -> list[str]:
    """Those that describe a model and its policy, and neither a method nor its collective.

    >>> planning_words(["model=llama2-7b", "method=diloco", "collective=ring", "tensor=8"])
    ['model=llama2-7b', 'tensor=8']
    """
    keys = {*OTHERS, *SHAPE, *POLICY} - {"method", "collective"}
    return [setting for setting in settings if setting.partition("=")[0] in keys]
