"""`commeff check`: the laws on a user's plug-in, one verdict for each law of each thing in it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import FrameType, ModuleType
from typing import Any, Literal, NamedTuple

import torch

import commeff.compressors.laws
import commeff.experiments.tasks.laws
import commeff.laws
import commeff.topologies.laws
from commeff.core.strategy import Strategy
from commeff.experiments.config.contained import ProcessEnding, contained
from commeff.experiments.config.loading import again, load
from commeff.experiments.config.plugins import Choice, choices, file_and_name, unfinished
from commeff.experiments.config.registry import locate, split
from commeff.experiments.config.varied import varied_cases, worded_cases, words_of
from commeff.require import did_you_mean

CODES: dict[str, ModuleType] = {
    "compressor": commeff.compressors.laws,
    "method": commeff.laws,
    "topology": commeff.topologies.laws,
    "task": commeff.experiments.tasks.laws,
}
Law = Callable[[Any], None]

# Laws that may be broken: what follows is said, and is no failure.
INFORMATION: dict[str, tuple[Law, ...]] = {
    "compressor": commeff.compressors.laws.INFORMATION,
    "method": commeff.laws.INFORMATION,
    "topology": commeff.topologies.laws.INFORMATION,
}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one law: it holds, it is broken (`sentence` says how), or it means nothing until another holds,
    or it is broken and may be (noted).
    """

    name: str
    kind: str
    law: str
    state: Literal["holds", "broken", "waits", "noted"]
    sentence: str = ""


def check_plugin(plugin: str, words: Sequence[str] = (), others: Sequence[Choice] = ()) -> list[Verdict]:
    """The laws of their kind on everything in FILE, or on the one called NAME in FILE:NAME.

    Parameters
    ----------
    plugin : FILE, MODULE, FILE:NAME or MODULE:NAME.
    words : settings, in place of those that are tried where there are none.
    others : choices of other files, which the settings may name.
    """
    file, name = file_and_name(plugin)
    plugins = choices(file)
    targets = {split(choice.node["_target_"])[1]: choice for choice in plugins}
    plugins = [*plugins, *others]
    nearly = unfinished(load(file))
    known_names = ", ".join(targets)
    if name and name not in {*targets, *nearly}:
        raise ValueError(f"no {name!r} in {file}{did_you_mean(name, targets) or f'; it has {known_names}'}")
    names = [name] if name else [*targets, *nearly]
    groups = sorted({targets[part].group for part in names if part in targets})
    words_by_part = {part: words_of(targets[part], words, groups) for part in names if part in targets}
    if unused := [word for word in words if not any(word in part_words for part_words in words_by_part.values())]:
        raise ValueError(f"{unused[0]!r} sets nothing: what is checked is a {' and a '.join(groups)}")
    verdicts = [
        verdict
        for part, part_words in words_by_part.items()
        for verdict in _verdicts(part, targets[part], part_words, plugins)
    ]
    return verdicts + [Verdict(key, nearly[key][0], "form", "broken", nearly[key][1]) for key in names if key in nearly]


def _verdicts(name: str, choice: Choice, words: Sequence[str], plugins: Sequence[Choice]) -> Iterator[Verdict]:
    worded = worded_cases(choice, words, plugins) if words else None
    code, value = CODES[choice.group], locate(choice.node["_target_"])
    file = load(split(choice.node["_target_"])[0]).__file__ or ""
    verdict, cases = partial(Verdict, name, choice.group), list[Any]()
    bases: dict[str, str] = {}  # of a law that means nothing until another holds: that one
    blamed: dict[str, str] = {}  # of an error in the user's own code: the first law that met it
    try:
        with contained():
            own = list(code.cases(value))
            cases = [*own, *varied_cases(choice, plugins)] if worded is None else worded
        yield verdict("form", "holds")
    except Exception as error:  # whatever the user's own code raises
        yield verdict("form", "broken", describe_error(error, file))
    information = INFORMATION.get(choice.group, ())
    history = [_history(value, cases)] if choice.group == "compressor" else []
    for law in (*code.LAWS, *history, *information):
        fault = _try(law, cases, file) if cases and law.__name__ not in bases else None
        base = bases.get(law.__name__, "") if cases else "form"
        base = base or (blamed.get(fault.place, "") if fault else "")
        if base:
            yield verdict(_plain(law), "waits", f"it means nothing until {base!r} holds")
        elif fault is None:
            yield verdict(_plain(law), "holds")
        else:
            yield verdict(_plain(law), "noted" if law in information else "broken", fault.sentence)
            bases |= {other.__name__: _plain(law) for other in code.BASES.get(law, ())}
            blamed |= {fault.place: _plain(law)} if fault.place else {}


class Fault(NamedTuple):
    """Why a law does not hold. place: of an error in the user's own code; "" if the law itself complains."""

    sentence: str
    place: str


def _try(law: Law, cases: Sequence[Any], file: str) -> Fault | None:
    """The sentence of the first case that breaks a law, and how many others do; None if none does."""
    faults = []
    for case in cases:
        try:
            with contained():
                law(case)
        except Exception as error:  # a law that does not hold, or whatever the user's own code raises
            place = "" if _complains(error) else f"{type(error).__name__} {_lines(error, file)}"
            sentence = describe_error(error, file)
            named = isinstance(case, commeff.compressors.Compressor) and str(case) not in sentence
            faults.append(Fault(f"{case}: {sentence}" if named else sentence, place))
    others = f" (and {len(faults) - 1} more of its {len(cases)} configurations)" if len(faults) > 1 else ""
    return faults[0]._replace(sentence=faults[0].sentence + others) if faults else None


def _history(kind: Any, cases: Sequence[commeff.compressors.Compressor]) -> Law:
    """The law that compares with compressors out of a fresh execution of the plug-in's file."""
    try:
        fresh = again(kind)
    except Exception:  # a file that cannot be executed twice is compared with nothing
        fresh = None
    twins: Mapping[Any, Any] = {case: _twin(case, fresh) for case in cases} if fresh else {}

    def check_history(compressor: commeff.compressors.Compressor) -> None:
        """Does nothing where a file cannot be executed twice."""
        if compressor in twins:
            commeff.compressors.laws.check_history(compressor, twins[compressor])

    return check_history


def _twin(case: Any, fresh: Any) -> Any:
    """The same settings in another class."""
    return fresh(**{field.name: getattr(case, field.name) for field in fields(case) if field.init})


def describe_error(error: BaseException, file: str) -> str:
    """A broken law's sentence; any other error with its kind and its line in the plug-in."""
    text = " ".join(str(error).split())
    if _complains(error):
        return text
    lines = _lines(error, file)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    shapes = [shape for frame in frames if (shape := _shape_of_rows(frame, file))]
    where = f"line {lines[-1]} of {file}" if lines else ""
    facts = ", ".join([*([where] if where else []), *(f"with {shape}" for shape in shapes[-1:])])
    return f"{type(error).__name__}: {text}" + (f" ({facts})" if facts else "")


def _complains(error: BaseException) -> bool:
    """Whether it is a law's own sentence."""
    return isinstance(error, (AssertionError, ProcessEnding)) and bool(str(error).split())


def _lines(error: BaseException, file: str) -> list[int | None]:
    """The lines of the plug-in on its way."""
    return [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]


def _shape_of_rows(frame: FrameType, file: str) -> str:
    """The shape of the rows that the plug-in's own code, or the strategy around it, has been called with."""
    code = frame.f_code
    if code.co_filename != file and code not in (Strategy.start.__code__, Strategy.step.__code__):
        return ""
    rows = ((name, frame.f_locals.get(name)) for name in code.co_varnames[: code.co_argcount])
    return next((f"{name} of {tuple(value.shape)}" for name, value in rows if isinstance(value, torch.Tensor)), "")


def _plain(law: Law) -> str:
    return law.__name__.removeprefix("check_").replace("_", " ")
