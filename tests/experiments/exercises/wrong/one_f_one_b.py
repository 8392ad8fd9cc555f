"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""


def _warm(warm, micro_batches):
    tasks = [f"F{i}" for i in range(warm)]
    for i in range(warm, micro_batches):
        tasks += [f"F{i}", f"B{i - warm}"]
    return tasks + [f"B{i}" for i in range(max(micro_batches - warm, 0), micro_batches)]


def one_too_many(stage, stages, micro_batches):
    """one forward too many"""
    return _warm(min(stages - stage, micro_batches), micro_batches)


def one_too_few(stage, stages, micro_batches):
    """one forward too few"""
    return _warm(min(max(0, stages - stage - 2), micro_batches), micro_batches)


def all_alike(stage, stages, micro_batches):
    """every stage warms up with p - 1"""
    return _warm(min(stages - 1, micro_batches), micro_batches)


def from_the_wrong_end(stage, stages, micro_batches):
    """counted from the wrong end"""
    return _warm(min(stage, micro_batches), micro_batches)


def gpipe(stage, stages, micro_batches):
    """GPipe"""
    return [f"{what}{i}" for what in "FB" for i in range(micro_batches)]


def one_at_a_time(stage, stages, micro_batches):
    """there is no warm-up"""
    return [f"{what}{i}" for i in range(micro_batches) for what in "FB"]


def beyond_the_last(stage, stages, micro_batches):
    """more forwards than micro-batches"""
    return _warm(stages - stage - 1, micro_batches)


def undrained(stage, stages, micro_batches):
    """the backwards of the warm-up are missing"""
    warm = min(stages - stage - 1, micro_batches)
    return [task for task in _warm(warm, micro_batches) if task[0] == "F" or int(task[1:]) < micro_batches - warm]


def bubble_of_the_whole_step(stages, micro_batches):
    """the idle share of the whole step"""
    return (stages - 1) / (micro_batches + stages - 1)


def bubble_of_all_stages(stages, micro_batches):
    """it is p - 1"""
    return stages / micro_batches


def bubble_in_micro_batches(stages, micro_batches):
    """divide by m"""
    return stages - 1
