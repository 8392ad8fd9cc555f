"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""


def forgets_the_learning_rate(x, gradient, compress, lr, steps):
    """forgets the learning rate"""
    e = 0.0
    for k in range(steps):
        q = gradient(x, k) + e
        c = compress(q)
        e = q - c
        x = x - lr[k] * c.mean(0)
    return x


def learning_rate_twice(x, gradient, compress, lr, steps):
    """acts twice"""
    e = 0.0
    for k in range(steps):
        q = lr[k] * gradient(x, k) + e
        c = compress(q)
        e = q - c
        x = x - lr[k] * c.mean(0)
    return x


def stores_the_compressed_part(x, gradient, compress, lr, steps):
    """stores the compressed part"""
    e = 0.0
    for k in range(steps):
        e = compress(lr[k] * gradient(x, k) + e)
        x = x - e.mean(0)
    return x


def no_memory(x, gradient, compress, lr, steps):
    """it has no memory"""
    for k in range(steps):
        x = x - compress(lr[k] * gradient(x, k)).mean(0)
    return x


def drops_the_old_error(x, gradient, compress, lr, steps):
    """drops the error of before"""
    e = 0.0
    for k in range(steps):
        g = lr[k] * gradient(x, k)
        c = compress(g + e)
        e = g - c
        x = x - c.mean(0)
    return x


def sums(x, gradient, compress, lr, steps):
    """1/n is missing"""
    e = 0.0
    for k in range(steps):
        q = lr[k] * gradient(x, k) + e
        c = compress(q)
        e = q - c
        x = x - c.sum(0)
    return x


def each_for_itself(x, gradient, compress, lr, steps):
    """each worker moves by its own"""
    e = 0.0
    for k in range(steps):
        q = lr[k] * gradient(x, k) + e
        c = compress(q)
        e = q - c
        x = x - c
    return x


def compresses_the_mean(x, gradient, compress, lr, steps):
    """the mean is compressed"""
    e = 0.0
    for k in range(steps):
        q = lr[k] * gradient(x, k).mean(0) + e
        c = compress(q[None])[0]
        e = q - c
        x = x - c
    return x
