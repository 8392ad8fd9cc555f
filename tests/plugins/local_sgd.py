def local_sgd(x, gradient, lr, period, steps):
    for k in range(steps):
        x = x - lr * gradient(x, k)
        if k % period == 0:
            x[:] = x.mean(axis=0)
    return x
