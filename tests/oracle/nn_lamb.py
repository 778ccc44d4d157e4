"""LAMB (You et al., 2020), written from the paper, and as Catalyst 22.04 computes it, written from its formulas:
PyTorch 1.13 has none to ask."""
import torch


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, group)

    def update(self, p, group):
        beta1, beta2 = group["betas"]
        state = self.state[p]
        if not state:
            state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["step"] += 1
        state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
        state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        m = state["m"] / (1 - beta1 ** state["step"])
        v = state["v"] / (1 - beta2 ** state["step"])
        direction = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
        weight_norm, direction_norm = p.norm(), direction.norm()
        trust = (weight_norm / direction_norm).item() if weight_norm > 0 and direction_norm > 0 else 1.0
        p.add_(direction, alpha=-group["lr"] * trust)


class CatalystLamb(Lamb):
    """The averages are not corrected for their start at zero, |w| counts as at most 10, and `adam` takes a trust
    ratio of 1."""

    def __init__(self, params, adam=False, **numbers):
        super().__init__(params, **numbers)
        self.adam = adam

    def update(self, p, group):
        beta1, beta2 = group["betas"]
        state = self.state[p]
        if not state:
            state.update(m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
        state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        direction = state["m"] / (state["v"].sqrt() + group["eps"]) + group["weight_decay"] * p
        weight_norm, direction_norm = p.norm().clamp(0, 10), direction.norm()
        trusts = weight_norm > 0 and direction_norm > 0 and not self.adam
        p.add_(direction, alpha=-group["lr"] * ((weight_norm / direction_norm).item() if trusts else 1.0))
