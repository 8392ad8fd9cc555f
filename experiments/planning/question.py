"""A question to the planner: `key=value` words of `commeff plan` as a model, a cluster, a batch and policy fields.

What the worker axis does is said by the words of `commeff train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from commeff import require
from commeff.cluster import Cluster, names
from commeff.cluster.hardware import quantity
from commeff.experiments.config.method_words import check_words, label, strategy
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import ConfigError
from commeff.planner import FRAMEWORKS, MEASURED, Constants, Model, Policies, Policy, Prediction, WorkerMethod, predict
from commeff.planner.frameworks import IDEAL
from commeff.planner.policies import PLAIN, STATES

if TYPE_CHECKING:
    from commeff.core import Strategy

PARTS = ("method", "compressor", "topology")  # a word of one of these, or of something in it, describes the method
DEGREES = {1: ("topology=one_peer_exponential",), 2: ("topology=ring",)}
SHAPE = tuple(field.name for field in fields(Model))
POLICY = tuple(field.name for field in fields(Policy))
OTHERS = ("model", "framework", "parameters", "cluster", "gpus", "bandwidth", "global_batch", "tokens")
KEYS = (*dict.fromkeys((*OTHERS, *SHAPE, *POLICY, *PARTS)), "period", "degree")
OPTIMIZER = "optimizer must be left out of a plan, got {!r}: the planner counts Adam's states whatever takes the steps"
SEARCHED = ("precision", "overlap")  # what a search does not choose
NAMES = ("model", "framework", "cluster", "bandwidth", "schedule", "recompute", "precision", "overlap", "collective")
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
            whole = {"unit": 1, "reshard": True, "fp32_parameters": False}
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


@dataclass(frozen=True)
class MethodWords:
    """A strategy of any number of workers, as the planner takes it; as text, what tables and figures call it.

    Attributes
    ----------
    words : `key=value` of a method, its compressor and its topology.
    plugins : choices that they may name beside the built-in ones.

    Examples
    --------
    >>> str(MethodWords(("method=choco", "compressor=top_k", "compressor.ratio=0.01", "topology=ring")))
    'choco, top_k, ratio 0.01, ring'
    """

    words: tuple[str, ...]
    plugins: tuple[Choice, ...] = field(default=(), compare=False, repr=False)

    def __call__(self, workers: int) -> Strategy:
        if self._regardless is not None:
            from commeff.experiments.config import build  # with torch

            return build.strategy(self._regardless)
        return self._composed(workers)[0]

    def _composed(self, workers: int) -> tuple[Strategy, dict[str, Any]]:
        return strategy([*self.words, "bucket_mb=0"], workers, self.plugins)  # what hides is the planner's

    @cached_property
    def _regardless(self) -> dict[str, Any] | None:
        """The configuration behind it, if it is the same for any number of workers, as of what has no topology."""
        try:
            few, more = (
                {key: value for key, value in self._composed(workers)[1].items() if key not in ("workers", "task")}
                for workers in (2, 4)
            )
        except ConfigError:
            return None
        return few if few == more else None

    def __str__(self) -> str:
        return label(self.words)


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


@cache
def models() -> dict[str, dict[str, Any]]:
    """The fields of `Model` of every shipped model, by name.

    >>> models()["llama2-70b"]["kv_heads"], len(models()) > 20
    (8, True)
    """
    return dict(yaml.safe_load((Path(__file__).with_name("models.yaml")).read_text()))


def named(name: str) -> Model:
    """A shipped model.

    >>> named("gpt3-175b").layers
    96
    """
    require.one_of(sorted(models()), model=name)
    return Model(**models()[name])


def sized(parameters: float) -> Model:
    """A GPT of about so many parameters: heads of 128, one to two layers a head, the sequences and words of GPT-3.

    >>> [round(sized(size).parameters / size, 2) for size in (125e6, 7e9, 175e9)]
    [1.0, 1.0, 1.0]
    """
    if not (type(parameters) in (int, float) and 5e7 <= parameters <= 1e13):
        raise ValueError(f"parameters must be 5e7 to 1e13, such as parameters=7e9, got {parameters!r}")
    heads, layers = np.meshgrid([*range(2, 12), *range(12, 400, 4)], np.arange(2, 800, 2), indexing="ij")
    hidden = 128.0 * heads
    counted = 12 * layers * hidden**2 + (50257 + 2048) * hidden
    off = np.where((heads <= layers) & (layers <= 2 * heads), abs(counted - parameters), np.inf)
    best = np.unravel_index(off.argmin(), off.shape)
    return Model(int(layers[best]), int(hidden[best]), int(heads[best]), 2048, 50257)


def planning_words(settings: Sequence[str]) -> list[str]:
    """Those that describe a model and its policy, and neither a method nor its collective.

    >>> planning_words(["model=llama2-7b", "method=diloco", "collective=ring", "tensor=8"])
    ['model=llama2-7b', 'tensor=8']
    """
    keys = {*OTHERS, *SHAPE, *POLICY} - {"method", "collective"}
    return [setting for setting in settings if setting.partition("=")[0] in keys]


def is_method_word(setting: str) -> bool:
    """Whether a word describes what the worker axis does.

    >>> [is_method_word(word) for word in ("compressor.ratio=0.01", "period=8", "tensor=8")]
    [True, True, False]
    """
    key = setting.partition("=")[0]
    return key.split(".")[0] in PARTS or key in ("period", "degree")


def read_method(settings: Sequence[str], plugins: Sequence[Choice] = ()) -> str | MethodWords:
    """The method of `Policy`. `period=` is short for `method.period=`, `degree=` for a topology of that degree.

    >>> read_method(["method=psgd"]), str(read_method(["method=gossip_pga", "period=8", "degree=2"]))
    ('psgd', 'gossip_pga, period 8, ring')
    """
    words: list[str] = []
    if any(word.startswith("period=") for word in settings) and not any(
        word.startswith("method=") for word in settings
    ):
        raise ValueError("period must go with a method, such as method=local_sgd, got none")
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "degree":
            if not value.isdecimal() or int(value) < 1:
                raise ValueError(f"degree must be a whole number from 1 on, got {value!r}")
            words += DEGREES.get(int(value), ("topology=random_regular", f"topology.degree={value}"))
        else:
            words.append(f"method.{setting}" if key == "period" else setting)
    return PLAIN if words == [f"method={PLAIN}"] else MethodWords(tuple(words), tuple(plugins))


def method_words(method: WorkerMethod) -> tuple[str, ...]:
    """The words of a method, for `commeff plan`.

    >>> method_words(WorkerMethod(read_method(["method=local_sgd", "period=4"])))
    ('method=local_sgd', 'method.period=4')
    """
    return method.method.words if isinstance(method.method, MethodWords) else (f"method={method.name}",)
