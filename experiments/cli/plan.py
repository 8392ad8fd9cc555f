"""`commeff plan`: predict a training step, and search for the best way to run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from commeff.experiments.cli.common import Json, Plugins, Settings, Store, adopted, refusals, try_file
from commeff.experiments.cli.planned import calibration, draw_timeline, show_compared, show_flags, show_run, show_step
from commeff.experiments.cli.searched import show_largest, show_search, show_sweep, show_zero

QUESTIONS = ("--search", "--bandwidth-sweep", "--largest", "--zero-stages", "--compare", "--emit")


def plan(
    settings: Settings = None,
    search: Annotated[bool, typer.Option("--search", help="Find the fastest policy that fits in memory.")] = False,
    method: Annotated[
        Literal["exhaustive", "dp", "ilp", "evolution", "bayes", "reinforce", "random"],
        typer.Option(help="Search algorithm."),
    ] = "exhaustive",
    budget: Annotated[int | None, typer.Option(min=1, help="Number of policies that the search may price.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of plans to show; in a table, of rows.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random searches.")] = 0,
    sweep: Annotated[
        bool, typer.Option("--bandwidth-sweep", help="Bandwidths at which gossip, local steps or compression pay.")
    ] = False,
    largest: Annotated[bool, typer.Option("--largest", help="The largest GPT that fits, by ZeRO stage.")] = False,
    zero_stages: Annotated[
        bool, typer.Option("--zero-stages", help="Memory of each ZeRO stage, beside the textbook's 16 bytes.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="What twice the FLOP/s, memory or bandwidth, or another policy would save."),
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A.yaml B.yaml", help="Two plans, part by part: files of KEY: VALUE."),
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Fit efficiency and latency to steps that you measured.")
    ] = None,
    emit: Annotated[
        Literal["torchtitan", "megatron", "commeff"] | None,
        typer.Option(help="Print the flags of a framework that runs the policy."),
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the pipeline and its memory: .pdf, .png or .svg.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the sweep, or the largest models.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Bytes and memory of a run of `commeff train`.")] = False,
    store: Store = Path("runs"),
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Predict the time, memory and cost of a training step on a cluster, or search for the best policy.

    * `commeff plan model=gpt3-175b cluster=a100_selene gpus=1024 tensor=8 pipeline=16 tokens=300e9`
    * `commeff plan model=gpt3-175b cluster=a100_selene gpus=1024 --search`
    * `commeff plan model=llama2-7b cluster=h100_400g gpus=64 --search --method evolution --budget 500`
    * `commeff plan layers=24 hidden=2048 heads=16 sequence=1024 vocab=51200 gpus=8 zero=1`
    * `commeff plan model=gpt3-13b gpus=32 tensor=4 pipeline=8 global_batch=64 --timeline pipeline.png`
    * `commeff plan model=llama2-7b gpus=64 recompute=full --bandwidth-sweep`
    * `commeff plan model=llama3-8b cluster=h100_400g gpus=64 framework=fsdp --search`
    * `commeff plan cluster=h100_400g --largest`
    * `commeff plan model=megatron-7.5b gpus=64 recompute=full --zero-stages`
    * `commeff plan model=gpt3-175b gpus=1024 tensor=8 pipeline=16 recompute=full --explain`
    * `commeff plan model=llama2-70b gpus=64 tensor=8 pipeline=4 sequence_parallel=true --emit megatron`
    * `commeff plan --run task=language model=llama_1m mesh.worker=2 mesh.tensor=2 method=diloco`
    * `commeff plan model=llama2-7b gpus=64 method=choco compressor=top_k compressor.ratio=0.01 topology=ring`

    Model and job: `model=` is a name (gpt3-175b, llama2-70b, ...; a wrong one lists all), or give sizes: `layers=
    hidden= heads= sequence= vocab=`, optionally `head_dim= kv_heads= ffn_hidden= gated= tied_embeddings=
    flash_attention=`, and with experts `experts= active_experts= expert_hidden= shared_experts= expert_every=
    capacity=`. `cluster=` is a name or a YAML file; `gpus=`; `bandwidth=` is that of one NIC. `global_batch=` is
    in sequences per step (default two per GPU), and `tokens=` is for the whole run.

    Policy: `tensor= context= pipeline= data=` ranks (data: all others by default), of which `expert=` share the
    experts, `micro_batch= schedule= chunks= stages= zero= recompute= recompute_every= recompute_stages=
    sequence_parallel= precision= overlap=`, with `zero=3` also `unit= prefetch= reshard= fp32_parameters=`, with
    `context=` also `context_by=`, with `precision=fp8` also `fp8_copies=`; `half_gradients=`; and, of memory, `bucket=
    loss_chunks= fragmentation= partition_checkpoints= offload_checkpoints=`. `stages=` is a list, or balanced.
    `recompute_stages=2` recomputes on the first two stages.
    `framework=` (megatron, fsdp, deepspeed, ideal) sets what that framework does unless told otherwise, and --search
    keeps to what it runs.
    Worker axis: `workers=`, and a method with the keys of `commeff train`: `method= compressor= topology=`, their
    settings (`compressor.ratio=0.01`) and `collective=`. `period=` is short for `method.period=`, and `degree=` for a
    topology of that degree. By default every data-parallel rank is a worker of such a method.

    --compare prints seconds and bytes of two plans beside each other; the files hold the settings above, and settings
    of the command line are those of both. --calibrate takes a table of four or more steps that you measured: a column
    step_seconds, and a column for each setting that differs between them. It fits two factors, one of how much of the
    data sheet kernels reach and one of latencies, and prices everything with them. --emit prints nothing else, and
    refuses what the framework has no flags for.

    --search prints plans that it does not tell apart as a tie. First come those with room in memory for 10 % more
    than they need, and of these the ones that lose least to the best where one part of the machine is worse. Below
    each is what it loses to the first, and --explain says what would help the first.

    Seconds are computed from counted work and seven constants, four of them fitted on published tables. They are 4 to
    14 % off on a table not used for the fit, and 3 to 14 % on those used.

    With --run the settings are those of `commeff train`. Bytes and memory are counted by executing the run's own code
    on tensors without memory. Measured values of the same run in --store stand beside them. `held_bytes` are
    parameters, gradients and the method's memory between steps. `peak_bytes` is the largest memory of the first
    process, within 20 % where workers are whole, including Python, libraries, data, batches, evaluation, checkpoints
    and copies; on a mesh up to 23 % too low was measured.
    """
    with refusals():
        if run:
            others = search, sweep, largest, zero_stages, explain, compare, calibrate, emit, timeline, figure, budget
            if any(others) or (method, top, seed) != ("exhaustive", 10, 0):
                raise ValueError(
                    "--run must be given without options of other questions, got one of them: it counts what one run "
                    "sends and holds, and neither searches nor draws; leave out --run, or --search and the like"
                )
            show_run(list(settings or []), adopted(plugin), store, as_json)
            return
        _agree((search, sweep, largest, zero_stages, compare is not None, emit is not None), explain, timeline, figure)
        if not search and (method, budget, top, seed) != ("exhaustive", None, 10, 0):
            raise ValueError(
                "--method, --budget, --top and --seed must be left out without --search, got one of them: "
                "they say how to search; add --search"
            )
        from commeff.experiments.planning.question import read_question

        words, plugins = list(settings or []), adopted(plugin)
        calibrated = calibration(calibrate, words, plugins, as_json or emit is not None)
        if compare is not None:
            show_compared(compare, words, plugins, calibrated, as_json)
            return
        if largest and not any(word.startswith("model=") for word in words):
            words.append("model=gpt3-175b")
        question = calibrated(read_question(words, plugins))
        if not (search or largest or zero_stages):
            question.one().check(question.model, question.cluster, question.global_batch)
        if search:
            show_search(question, method, budget, top, seed, explain, as_json)
        elif largest:
            show_largest(question, figure, as_json)
        elif sweep:
            show_sweep(question, figure, as_json)
        elif zero_stages:
            show_zero(question, as_json)
        elif emit is not None:
            show_flags(question, emit, as_json)
        else:
            show_step(question, explain, as_json)
        if timeline is not None:
            draw_timeline(question, timeline)


def _agree(questions: tuple[bool, ...], explain: bool, timeline: Path | None, figure: Path | None) -> None:
    """Refuse incompatible options."""
    if sum(questions) > 1:
        raise ValueError(
            f"at most one of {', '.join(QUESTIONS)} must be given, got {sum(questions)}: "
            "they are different questions; ask one at a time"
        )
    for name, present, others in (("--timeline", timeline is not None, 0), ("--explain", explain, 1)):
        if present and any(questions[others:]):
            raise ValueError(
                f"{name} must be given for a single policy{' or a search' * others}, got another question; leave out "
                f"{', '.join(QUESTIONS[others:])}"
            )
    if figure is not None and not any(questions[1:3]):
        raise ValueError(
            "--figure must be given with --bandwidth-sweep or --largest, got neither: it draws one of them; "
            "add one, or draw the pipeline with --timeline FILE"
        )
    for path in (timeline, figure):
        try_file("a figure's file", path, figure=True)
