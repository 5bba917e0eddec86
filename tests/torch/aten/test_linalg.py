"""Products and systems of equations, captured whole, like torch."""

import torch
from torch import nn

from tests.torch.test_capture import check


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(2, 3, 3) + 3 * torch.eye(3))
        self.bilinear = nn.Bilinear(3, 3, 2)

    def forward(self, x):
        a = self.a
        return [
            a @ x,
            x[0] @ a,
            a @ x[0, 0],
            torch.einsum("b i j, bjk -> ik", a, x),
            torch.einsum("bij->bji", a),
            torch.einsum("...ii->...i", a),
            torch.baddbmm(x, a, x, beta=0.5, alpha=2.0),
            torch.addmm(x[0], a[0], a[1], alpha=3),
            torch.tensordot(a, x, dims=([1, 2], [2, 1])),
            self.bilinear(x, a),
            torch.linalg.norm(a),
            torch.linalg.norm(a, ord=1, dim=(1, 2)),
            torch.linalg.cross(a, x),
        ]


def test_products():
    torch.manual_seed(0)
    check(Products(), torch.randn(2, 3, 3), atol=2e-4)


class Systems(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(2, 3, 3) + 3 * torch.eye(3))

    def forward(self, x):
        a = self.a
        symmetric = a @ a.mT + torch.eye(3)
        sign, logarithm = torch.linalg.slogdet(a)
        return [
            torch.inverse(a),
            torch.linalg.inv(a),
            torch.linalg.det(a),
            sign.detach(),
            logarithm,
            torch.linalg.solve(a, x),
            torch.linalg.solve(a, x[..., 0]),
            torch.linalg.cholesky(symmetric),
            torch.linalg.solve_triangular(a.triu(), x, upper=True),
        ]


def test_systems_of_equations():
    torch.manual_seed(0)
    check(Systems(), torch.randn(2, 3, 3), rtol=1e-3, atol=2e-3)
