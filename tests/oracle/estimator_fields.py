#!/usr/bin/python3
"""What NumPy, SciPy and scikit-learn say of two fields.

    /usr/bin/python3 estimator_fields.py FOLDER

reads FOLDER/a.npy and b.npy, (channels, n, n, n), and writes what tests/estimator/test_measures.c compares with
beside them. Exits with 77 where a library is missing.
"""
import sys

try:
    import numpy as np
    from scipy import ndimage, stats
    from sklearn.kernel_ridge import KernelRidge
except ImportError as error:
    print(error)
    sys.exit(77)

FOLDER = sys.argv[1]
a = np.load(FOLDER + "/a.npy")
b = np.load(FOLDER + "/b.npy")
wide = a.astype(np.float64)
n = a.shape[-1]


def save(name, value):
    np.save("%s/%s.npy" % (FOLDER, name), np.ascontiguousarray(value, dtype=np.float64))


def each(function, field):
    flat = field.reshape((-1,) + field.shape[-3:])
    return np.stack([function(x) for x in flat]).reshape(field.shape)


def box(width):
    return lambda x: each(lambda y: ndimage.uniform_filter(y, width, mode="wrap"), x)


def gaussian(sigma):
    return lambda x: each(lambda y: ndimage.gaussian_filter(y, sigma, mode="wrap"), x)


def spectral(modes):
    keep = np.abs(np.fft.fftfreq(n, 1 / n)) < modes
    mask = keep[:, None, None] & keep[None, :, None] & keep[None, None, :]
    return lambda x: each(lambda y: np.fft.ifftn(np.fft.fftn(y) * mask).real, x)


def distributions():
    x, y = wide.ravel(), b.astype(np.float64).ravel()
    save("mse", [np.mean((x - y) ** 2)])
    save("ks", [stats.ks_2samp(x, y).statistic])
    for name, bins in (("pdf", 100), ("pdf7", 7)):
        density, edges = np.histogram(x, bins=bins, density=True)
        save(name + "_edges", edges)
        save(name + "_density", density)
    save("cdf_values", np.sort(x))
    save("cdf_fractions", np.arange(1, x.size + 1) / x.size)


def spectra():
    for axis in range(3):
        save("profile%d" % axis, wide.mean(axis=tuple(1 + i for i in range(3) if i != axis)))
    power = sum(np.abs(np.fft.fftn(c) / c.size) ** 2 for c in wide)
    k = np.fft.fftfreq(n, 1 / n)
    length = np.sqrt(k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2)
    shell = np.floor(length + 0.5).astype(int)
    save("energy", [0.5 * power[shell == i].sum() for i in range(1, n // 2 + 1)])


def strain(u, spacing):
    gradient = np.stack([[(np.roll(c, -1, axis) - np.roll(c, 1, axis)) / (2 * spacing) for axis in range(3)] for c in u])
    s = (gradient + gradient.swapaxes(0, 1)) / 2
    return np.sqrt(2 * (s * s).sum(axis=(0, 1))) * s


def stress():
    for name, function in (("box", box(3)), ("box4", box(4)), ("gaussian", gaussian(1.5)), ("spectral", spectral(5))):
        save("filter_" + name, function(wide))
    u = wide

    def subgrid(smooth):
        products = u[:, None] * u[None, :]
        mean = smooth(u)
        return smooth(products) - mean[:, None] * mean[None, :]

    save("reynolds", subgrid(gaussian(1.5)))
    save("smagorinsky", -2 * (0.16 * 0.5) ** 2 * strain(u, 0.25))
    fine = strain(u, 0.25)
    m = 2 * (box(2)(fine) - 4 * strain(box(2)(u), 0.25))
    l = subgrid(box(2))
    l = l - np.eye(3)[:, :, None, None, None] * np.trace(l) / 3
    c = (l * m).sum() / (m * m).sum() / 0.25**2
    save("dynamic_c", [c])
    save("dynamic", -2 * c * 0.25**2 * fine)


def regression():
    x, y = wide[:, ::4, ::4, ::4].reshape(3, -1).T, b[:, ::4, ::4, ::4].astype(np.float64).reshape(3, -1).T
    for name, model in (("krr", KernelRidge(kernel="rbf")), ("krr_sharp", KernelRidge(kernel="rbf", alpha=0.1, gamma=5))):
        save(name, model.fit(x, y).predict(x).T.reshape((3,) + a[0, ::4, ::4, ::4].shape))


distributions()
spectra()
stress()
regression()
