"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""


def no_fp32_weights(parameters, layer, gpus, stage):
    """the fp32 copy of the weights is missing"""
    w, g, o = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 4 * g + 8 * o + _whole(layer, gpus, stage)


def sixteen_bytes(parameters, layer, gpus, stage):
    """gradients have 4 bytes"""
    w, g, o = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 2 * g + 12 * o + _whole(layer, gpus, stage)


def moments_in_16_bits(parameters, layer, gpus, stage):
    """Adam has 12 bytes, and not 4"""
    w, g, o = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 4 * g + 4 * o + _whole(layer, gpus, stage)


def stage_1_divides_gradients(parameters, layer, gpus, stage):
    """stage 1 divides gradients too"""
    w, _, o = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 16 * o + _whole(layer, gpus, stage)


def turned_round(parameters, layer, gpus, stage):
    """the order is turned round"""
    o, g, w = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 4 * g + 12 * o + _whole(layer, gpus, stage)


def gathers_nothing(parameters, layer, gpus, stage):
    """no layer is whole"""
    w, g, o = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 4 * g + 12 * o


def zero_memory_of_the_paper(parameters, layer, gpus, stage):
    """these are the 16 bytes of ZeRO's paper"""
    w, g, o = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 2 * g + 12 * o


def zero_memory_alone(parameters, layer, gpus, stage):
    """one GPU alone gathers nothing"""
    w, g, o = (share(parameters, gpus, stage) for share in _SHARES)
    return 2 * w + 4 * g + 12 * o + (4 * layer if stage == 3 else 0)


def _divided_from(first):
    return lambda parameters, gpus, stage: parameters / gpus if stage >= first else parameters


_SHARES = [_divided_from(3), _divided_from(2), _divided_from(1)]


def _whole(layer, gpus, stage):
    return 4 * layer if stage == 3 and gpus > 1 else 0


def zero_traffic_alike(parameters, gpus, stage):
    """stage 3 sends 3 times"""
    return 2 * parameters * (gpus - 1) / gpus


def zero_traffic_halved(parameters, gpus, stage):
    """stages 1 and 2 send as much"""
    return [2, 1, 1, 3][stage] * parameters * (gpus - 1) / gpus


def zero_traffic_rounded(parameters, gpus, stage):
    """(n - 1)/n is missing"""
    return 3 * parameters if stage == 3 else 2 * parameters
