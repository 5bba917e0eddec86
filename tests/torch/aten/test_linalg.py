"""Products and systems of equations, captured whole, like torch."""

import torch
from torch import nn

from tests.torch.capture.test_module import check


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


class Blends(nn.Module):
    """Every product that is added to a tensor, with one of the two multiplied by zero and full of NaN."""

    def forward(self, x, a):
        nothing, v = torch.full_like(x, torch.nan), x[0, 0]
        row = nothing[0, 0]
        return [
            torch.addmm(x[0], nothing[0], nothing[1], alpha=0),
            torch.addmm(nothing[0], x[0], a[0], beta=0),
            torch.addmv(v, nothing[0], row, alpha=0),
            torch.addmv(row, a[0], v, beta=0),
            torch.addbmm(x[0], nothing, nothing, alpha=0, beta=2),
            torch.addbmm(nothing[0], x, a, beta=0),
            torch.baddbmm(nothing, x, a, beta=0),
            torch.addr(nothing[0], v, v, beta=0),
        ]


def test_what_a_blend_multiplies_by_zero_is_left_out_even_when_it_is_nan():
    torch.manual_seed(0)
    check(Blends(), torch.randn(2, 3, 3), torch.randn(2, 3, 3))


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
