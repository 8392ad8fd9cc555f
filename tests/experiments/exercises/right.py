"""Each exercise as a good student writes it."""

import numpy as np


def ring_all_reduce(rows, exchange):
    n, d = rows.shape
    size = d // n
    for t in range(2 * (n - 1)):
        place = [slice((i - t) % n * size, ((i - t) % n + 1) * size) for i in range(n)]
        if t >= n - 1:
            place = [slice((i + 1 - t + n - 1) % n * size, ((i + 1 - t + n - 1) % n + 1) * size) for i in range(n)]
        received = exchange([rows[i, place[i]] for i in range(n)])
        for i in range(n):
            if t < n - 1:
                rows[i, place[i - 1]] += received[i]
            else:
                rows[i, place[i - 1]] = received[i]
    return rows / n


def gossip(x, gradient, w, lr, steps):
    for k in range(steps):
        half = x - lr * gradient(x, k)
        x = np.array([sum(w[i, j] * half[j] for j in range(len(x))) for i in range(len(x))])
    return x


def local_sgd(x, gradient, lr, period, steps):
    for k in range(steps):
        x -= lr * gradient(x, k)
        if (k + 1) % period == 0:
            x[:] = x.mean(axis=0)
    return x


def diloco(x, gradient, lr, period, outer_lr, momentum, steps):
    anchor = x[0].copy()
    u = np.zeros_like(anchor)
    m = np.zeros_like(x)
    v = np.zeros_like(x)
    for k in range(steps):
        g = gradient(x, k)
        m += 0.1 * (g - m)
        v += 0.001 * (g**2 - v)
        x = x - lr * (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8)
        if (k + 1) % period == 0:
            outer = anchor - x.mean(axis=0)
            u = momentum * u + outer
            anchor = anchor - outer_lr * (outer + momentum * u)
            x = np.tile(anchor, (len(x), 1))
    return x


def qsgd(v, levels, random):
    out = np.zeros_like(v)
    for i, row in enumerate(v):
        norm = np.sqrt((row**2).sum())
        if norm > 0:
            a = levels * np.abs(row) / norm
            low = np.floor(a)
            up = random.uniform(size=len(row)) < a - low
            out[i] = norm * np.sign(row) * (low + up) / levels
    return out


def variance(v, levels):
    norm = np.linalg.norm(v, axis=1, keepdims=True)
    p = (levels * np.abs(v) / norm) % 1
    return (norm[:, 0] / levels) ** 2 * (p - p**2).sum(axis=1)


def ef_sgd(x, gradient, compress, lr, steps):
    e = np.zeros_like(x)
    for k in range(steps):
        q = lr[k] * gradient(x, k) + e
        sent = compress(q)
        x = x - sent.mean(axis=0)
        e = q - sent
    return x


def power_sgd(x, gradient, right, lr, steps):
    e = np.zeros_like(x)
    for k in range(steps):
        m = gradient(x, k) + e
        p, _ = np.linalg.qr((m @ right).mean(axis=0))
        right = m.mean(axis=0).T @ p
        out = p @ right.T
        e = m - out
        x = x - lr * out
    return x


def d2(x, gradient, w, lr, steps):
    last, move = x, 0.0
    for k in range(steps):
        new_move = -lr[k] * gradient(x, k)
        last, x, move = x, w @ (2 * x - last + new_move - move), new_move
    return x


def zero_memory(parameters, layer, gpus, stage):
    weights, gradients, adam = 2 * parameters, 4 * parameters, 12 * parameters
    if stage >= 1:
        adam /= gpus
    if stage >= 2:
        gradients /= gpus
    if stage == 3 and gpus > 1:
        weights = weights / gpus + 2 * 2 * layer
    return weights + gradients + adam


def zero_traffic(parameters, gpus, stage):
    times = 3 if stage == 3 else 2
    return times * parameters * (gpus - 1) / gpus


def one_f_one_b(stage, stages, micro_batches):
    forward, backward, tasks = 0, 0, []
    while backward < micro_batches:
        if forward < micro_batches and forward - backward < stages - stage:
            tasks.append(f"F{forward}")
            forward += 1
        else:
            tasks.append(f"B{backward}")
            backward += 1
    return tasks


def bubble(stages, micro_batches):
    return (stages - 1) / micro_batches
