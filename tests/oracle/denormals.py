"""A linear layer trained by PyTorch's Adam on features half of which fall silent after the first step.

    /usr/bin/python3 tests/oracle/denormals.py > tests/golden/train/denormals.txt

The moments of the silent features' weights decay into denormals (m at about step 380, v at about step 780), which PyTorch
keeps. The features speak again at step 820. A row for each 20th step: its loss. Weights and numbers are those of
torch.manual_seed(7), which the library draws too.
"""
import torch

STEPS, WAKE, EVERY = 1000, 820, 20

torch.manual_seed(7)
model = torch.nn.Linear(12, 4)
x = torch.randn(8, 12)
y = torch.arange(8) % 4
silent = x.clone()
silent[:, 6:] = 0
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.8, 0.9))
smallest = []
for step in range(STEPS):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x if step == 0 or step >= WAKE else silent), y)
    loss.backward()
    optimizer.step()
    if step % EVERY == EVERY - 1:
        print(f"{loss.item():.9g}")
    moments = optimizer.state[model.weight]
    smallest += [step for m in (moments["exp_avg"], moments["exp_avg_sq"]) if ((m != 0) & (m.abs() < 2**-126)).any()]
assert min(smallest) < 450 and max(smallest) > 780, (min(smallest), max(smallest))
