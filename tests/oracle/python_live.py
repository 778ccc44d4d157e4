"""Trains one script's model twice, with PyTorch and with the package `lockstep`, from the same seed: first weights bit for bit,
last weights and losses within 1e-5. Two seeds' models, and a convolutional net; tensors travel through DLPack."""
import numpy
import torch

import lockstep

SAMPLES, EPOCHS, BATCH = 120, 3, 16


def draw(library):
    """The script's data and model, in the order of the script."""
    library.manual_seed(5)
    x, y = library.rand(SAMPLES, 12), library.rand(SAMPLES, 1)
    nn = library.nn
    return x, y, nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))


def pictures(library):
    library.manual_seed(6)
    x, y = library.rand(SAMPLES, 1, 8, 8), library.rand(SAMPLES, 4)
    nn = library.nn
    return x, y, nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4))


def train_torch(x, y, model, optimizer):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    criterion = torch.nn.MSELoss()
    for _ in range(EPOCHS):
        total = 0
        for features, targets in loader:
            loss = criterion(model(features), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss) * len(features)
    return total / SAMPLES


def train_lockstep(x, y, model, optimizer):
    from lockstep.utils.data import DataLoader, TensorDataset
    runner = lockstep.dl.SupervisedRunner()
    runner.train(model=model, criterion=lockstep.nn.MSELoss(), optimizer=optimizer, num_epochs=EPOCHS,
                 loaders={"train": DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)})
    return runner.loader_metrics["loss"]


def compare(make):
    x, y, theirs = make(torch)
    a, b, ours = make(lockstep)
    numpy.testing.assert_array_equal(x.numpy(), a.numpy())
    first = {name: value.numpy() for name, value in theirs.state_dict().items()}
    for name, value in ours.state_dict().items():
        numpy.testing.assert_array_equal(value, first[name])
    wanted = train_torch(x, y, theirs, torch.optim.Adam(theirs.parameters(), lr=0.01))
    found = train_lockstep(a, b, ours, lockstep.optim.Adam(ours.parameters(), lr=0.01))
    assert abs(wanted - found) < 1e-5, (wanted, found)
    for name, value in ours.state_dict().items():
        numpy.testing.assert_allclose(value, theirs.state_dict()[name].numpy(), atol=1e-5)
    weights = {name: torch.from_dlpack(value) for name, value in ours.state_dict().items()}
    theirs.load_state_dict(weights)
    ours.load_state_dict(dict(theirs.state_dict()))


for make in (draw, pictures):
    compare(make)
print("python: the same numbers as PyTorch")
