"""`commeff plan`: predict a training step, and search for the best way to run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from commeff.experiments.cli.common import Json, Plugins, Settings, Store, adopted, refusals, try_figure
from commeff.experiments.cli.planned import (
    draw_timeline,
    show_largest,
    show_run,
    show_search,
    show_step,
    show_sweep,
    show_zero,
)

QUESTIONS = ("--search", "--bandwidth-sweep", "--largest", "--zero-stages")


def plan(
    settings: Settings = None,
    search: Annotated[
        bool, typer.Option("--search", help="Find the fastest policy that fits, instead of pricing one.")
    ] = False,
    method: Annotated[
        Literal["exhaustive", "dp", "ilp", "evolution", "bayes", "reinforce", "random"],
        typer.Option("--method", help="How to search."),
    ] = "exhaustive",
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Policies that the search may price.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Plans of the search to show.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of searches that draw at random.")] = 0,
    sweep: Annotated[
        bool, typer.Option("--bandwidth-sweep", help="Which NIC makes gossip, local steps or compression pay.")
    ] = False,
    largest: Annotated[bool, typer.Option("--largest", help="The largest GPT that fits, by ZeRO stage.")] = False,
    zero_stages: Annotated[
        bool, typer.Option("--zero-stages", help="Memory of each ZeRO stage, the textbook's 16 bytes beside ours.")
    ] = False,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", metavar="FILE", help="Draw the pipeline: .pdf, .png or .svg.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="Draw the sweep, or the largest models.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="What a run of `commeff train` with these settings sends and holds.")
    ] = False,
    store: Store = Path("runs"),
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Predict the time, the memory and the cost of a training step on a cluster; search for the best policy.

    * `commeff plan model=gpt3-175b cluster=a100_selene gpus=1024 tensor=8 pipeline=16 tokens=300e9`
    * `commeff plan model=gpt3-175b cluster=a100_selene gpus=1024 --search`
    * `commeff plan model=llama2-7b cluster=h100_400g gpus=64 --search --method evolution --budget 500`
    * `commeff plan layers=24 hidden=2048 heads=16 sequence=1024 vocab=51200 gpus=8 zero=1`
    * `commeff plan model=gpt3-13b gpus=32 tensor=4 pipeline=8 global_batch=64 --timeline pipeline.png`
    * `commeff plan model=llama2-7b gpus=64 recompute=full --bandwidth-sweep`
    * `commeff plan cluster=h100_400g --largest`
    * `commeff plan model=megatron-7.5b gpus=64 recompute=full --zero-stages`
    * `commeff plan --run task=language model=llama_1m mesh.worker=2 mesh.tensor=2 method=diloco`
    * `commeff plan model=llama2-7b gpus=64 method=choco compressor=top_k compressor.ratio=0.01 topology=ring`

    KEYs: `model=` a name (gpt3-175b, llama2-70b, ...; a wrong one lists them all), or sizes: `layers= hidden= heads=
    sequence= vocab=` and perhaps `head_dim= kv_heads= ffn_hidden= gated= tied_embeddings= flash_attention=`. `cluster=`
    a name or a YAML file, `gpus=`, `bandwidth=` of one NIC. `global_batch=` sequences a step (two for each GPU unless
    told), `tokens=` of the whole run.

    The policy: `tensor= pipeline= data=` ranks (data: all that are left), `micro_batch= schedule= chunks= zero=
    recompute= sequence_parallel= precision= overlap= stages=`, and what the worker axis does: `workers=`, and a method
    by the words of `commeff train`: `method= compressor= topology=`, their settings (`compressor.ratio=0.01`) and
    `collective=`; `period=` is short for `method.period=`, `degree=` for a topology of that degree. Every data-parallel
    rank is a worker of such a method unless `workers=` says otherwise.

    Nothing is measured: seconds follow from counted work and seven constants, five of them fitted on published tables.
    They are 7 to 43 % off on a table that the fit has not seen, 3 to 14 % on the tables that it was made on.

    With --run the settings are those of `commeff train`. Bytes and memory are counted, not modelled: the run's own code
    is played on tensors that take no memory. What a run in --store has measured stands beside them. `held_bytes` are
    parameters, gradients and the method's memory between two steps. `peak_bytes` is the most that the first process has
    in memory at once, within 20 %: also Python and its libraries, the data, batches, evaluation, checkpoints, copies.
    """
    with refusals():
        if run:
            others = search, sweep, largest, zero_stages, timeline, figure, budget, method, top, seed
            if others != (False,) * 4 + (None, None, None, "exhaustive", 10, 0):
                raise ValueError(
                    "--run must be given without options of other questions, got one of them: it counts what one run "
                    "sends and holds, and neither searches nor draws; leave out --run, or --search and the like"
                )
            show_run(list(settings or []), adopted(plugin), store, as_json)
            return
        _agree((search, sweep, largest, zero_stages), timeline, figure)
        if not search and (method, budget, top, seed) != ("exhaustive", None, 10, 0):
            raise ValueError(
                "--method, --budget, --top and --seed must be left out without --search, got one of them: "
                "they say how to search; add --search"
            )
        from commeff.experiments.planning.question import read_question

        words = list(settings or [])
        question = read_question(
            [*words, "model=gpt3-175b"] if largest and not any(w.startswith("model=") for w in words) else words,
            adopted(plugin),
        )
        if not (search or largest or zero_stages):
            question.one().check(question.model, question.cluster, question.global_batch)
        if search:
            show_search(question, method, budget, top, seed, as_json)
        elif largest:
            show_largest(question, figure, as_json)
        elif sweep:
            show_sweep(question, figure, as_json)
        elif zero_stages:
            show_zero(question, as_json)
        else:
            show_step(question, as_json)
        if timeline is not None:
            draw_timeline(question, timeline)


def advised(settings: Settings = None) -> None:
    """What `commeff advise` ends in: its evidence, small tasks, told too few methods apart."""
    with refusals():
        raise ValueError("commeff advise is gone: `commeff plan` prices a method's step on a cluster, see its --help")


def _agree(questions: tuple[bool, ...], timeline: Path | None, figure: Path | None) -> None:
    """Refuse options that cannot be had together."""
    if sum(questions) > 1:
        raise ValueError(
            f"at most one of {', '.join(QUESTIONS)} must be given, got {sum(questions)}: "
            "they are different questions; ask one at a time"
        )
    if timeline is not None and any(questions):
        raise ValueError(
            "--timeline must be given for a single policy, got a search or a sweep: it draws one policy; "
            f"leave out {', '.join(QUESTIONS)}"
        )
    if figure is not None and not any(questions[1:3]):
        raise ValueError(
            "--figure must be given with --bandwidth-sweep or --largest, got neither: it draws one of them; "
            "add one, or draw the pipeline with --timeline FILE"
        )
    for path in (timeline, figure):
        try_figure("a figure's file", path)
