"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""


def averages_at_step_0(x, gradient, lr, period, steps):
    """it averages at step 0"""
    for k in range(steps):
        x = x - lr * gradient(x, k)
        if k % period == 0:
            x[:] = x.mean(axis=0)
    return x


def as_the_slide_prints_it(x, gradient, lr, period, steps):
    """as a lecture prints it"""
    for k in range(steps):
        if k % period != 0:
            x = x - lr * gradient(x, k)
        else:
            x[:] = x.mean(axis=0)
    return x


def averages_instead_of_a_step(x, gradient, lr, period, steps):
    """no gradient step where it averages"""
    for k in range(1, steps + 1):
        if k % period:
            x -= lr * gradient(x, k - 1)
        else:
            x[:] = x.mean(0)
    return x


def averages_before_the_step(x, gradient, lr, period, steps):
    """before the last gradient step"""
    for k in range(steps):
        if (k + 1) % period == 0:
            x[:] = x.mean(0)
        x = x - lr * gradient(x, k)
    return x


def averages_at_the_begin(x, gradient, lr, period, steps):
    """at the begin of the next period"""
    for k in range(steps):
        if k and k % period == 0:
            x[:] = x.mean(0)
        x = x - lr * gradient(x, k)
    return x


def one_step_late(x, gradient, lr, period, steps):
    """one late"""
    for k in range(steps):
        x = x - lr * gradient(x, k)
        if k > 0 and k % period == 0:
            x[:] = x.mean(0)
    return x


def sums(x, gradient, lr, period, steps):
    """1/n is missing"""
    for k in range(steps):
        x = x - lr * gradient(x, k)
        if (k + 1) % period == 0:
            x[:] = x.sum(0)
    return x
