"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""


def _run(x, gradient, w, lr, steps, rule):
    old, old_g, old_h = x, 0 * x, x
    for k in range(steps):
        g = gradient(x, k)
        h = x - lr[k] * g
        new = w @ h if k == 0 else rule(x, old, old_h, g, old_g, k)
        old, old_g, old_h, x = x, g, h, new
    return x


def rate_of_now(x, gradient, w, lr, steps):
    """has this step's rate"""
    return _run(x, gradient, w, lr, steps, lambda x, o, h, g, b, k: w @ (2 * x - o - lr[k] * (g - b)))


def mixes_the_previous_again(x, gradient, w, lr, steps):
    """mixed once more"""
    return _run(x, gradient, w, lr, steps, lambda x, o, h, g, b, k: w @ (2 * x - w @ o - lr[k] * g + lr[k - 1] * b))


def remembers_what_is_not_yet_mixed(x, gradient, w, lr, steps):
    """not yet mixed"""
    return _run(x, gradient, w, lr, steps, lambda x, o, h, g, b, k: w @ (2 * x - h - lr[k] * g + lr[k - 1] * b))


def correction_outside(x, gradient, w, lr, steps):
    """the correction is not mixed"""
    return _run(x, gradient, w, lr, steps, lambda x, o, h, g, b, k: w @ (x - lr[k] * g) + x - o + lr[k - 1] * b)


def no_previous_gradient(x, gradient, w, lr, steps):
    """the previous gradient is missing"""
    return _run(x, gradient, w, lr, steps, lambda x, o, h, g, b, k: w @ (2 * x - o - lr[k] * g))


def plain_gossip(x, gradient, w, lr, steps):
    """gossip without a correction"""
    return _run(x, gradient, w, lr, steps, lambda x, o, h, g, b, k: w @ (x - lr[k] * g))


def first_step_alone(x, gradient, w, lr, steps):
    """the first step is not mixed"""
    old, old_g = x, gradient(x, 0)
    x = x - lr[0] * old_g
    for k in range(1, steps):
        g = gradient(x, k)
        old, old_g, x = x, g, w @ (2 * x - old - lr[k] * g + lr[k - 1] * old_g)
    return x
