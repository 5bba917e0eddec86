"""Capture of modules: what is read and written, what gradients see, what is refused."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

from openipu.errors import UnsupportedError
from openipu.torch.aten import lowering
from openipu.torch.capture.module import capture


def values(module, captured):
    parameters = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    return (
        [parameters[name].detach().numpy().copy() for name in captured.parameters],
        [buffers[name].detach().numpy().copy() for name in captured.buffers],
    )


def check(module, *args, rtol=2e-4, atol=2e-5):
    """Compare outputs, buffers and the gradients of parameters with torch; returns the capture."""
    torch.manual_seed(0)
    captured = capture(module, args)
    inputs = [leaf.detach().numpy().copy() for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    parameters, buffers = values(module, captured)
    with jax.enable_x64(True):
        run = jax.jit(
            lambda p, b, i: jax.vjp(lambda p: captured(p, b, i, jax.random.key(0)), p, has_aux=True),
            compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
        )
        outputs, pull, mutated = run(parameters, buffers, inputs)
        expected = [x for x in pytree.tree_leaves(module(*args)) if isinstance(x, torch.Tensor)]
        seeds = [torch.randn(e.shape).to(e.dtype) if e.requires_grad else None for e in expected]
        for ours, theirs, shape in zip(outputs, expected, captured.outputs, strict=True):
            assert (ours.shape, ours.dtype) == (shape.shape, shape.dtype)
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=rtol, atol=atol)
        for name, value in zip(captured.mutated, mutated, strict=True):
            theirs = dict(module.named_buffers())[name].numpy()
            np.testing.assert_allclose(value, theirs, rtol=rtol, atol=atol, err_msg=name)
        if parameters:
            _check_gradients(module, captured, pull, outputs, expected, seeds, rtol, atol)
    return captured


def _check_gradients(module, captured, pull, outputs, expected, seeds, rtol, atol):
    named = dict(module.named_parameters())
    trainable = [named[name] for name in captured.parameters if named[name].requires_grad]
    pairs = [(e, s) for e, s in zip(expected, seeds, strict=True) if s is not None]
    theirs = iter(torch.autograd.grad([e for e, _ in pairs], trainable, [s for _, s in pairs], allow_unused=True))
    cotangents = [
        jnp.zeros(o.shape, o.dtype if jnp.issubdtype(o.dtype, jnp.floating) else jax.dtypes.float0)
        if s is None
        else s.numpy()
        for o, s in zip(outputs, seeds, strict=True)
    ]
    (ours,) = pull(cotangents)
    for name, gradient in zip(captured.parameters, ours, strict=True):
        their = next(theirs) if named[name].requires_grad else None
        wanted = np.zeros(gradient.shape) if their is None else their.numpy()
        np.testing.assert_allclose(gradient, wanted, rtol=rtol * 5, atol=atol * 5, err_msg=name)


def test_a_multilayer_perceptron():
    captured = check(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.LogSoftmax(-1)), torch.randn(5, 4))
    assert captured.parameters == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert captured.inputs == (jax.ShapeDtypeStruct((5, 4), np.float32),)
    assert captured.outputs == (jax.ShapeDtypeStruct((5, 3), np.float32),)
    assert not captured.needs_key and not captured.mutated and not captured.buffers


def test_a_convolutional_network_updates_its_statistics():
    module = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 6, 3, groups=3, stride=2),
        nn.GroupNorm(3, 6),
        nn.AvgPool2d(2, ceil_mode=True, stride=1),
        nn.Flatten(),
        nn.LayerNorm(6),
        nn.Linear(6, 4),
    )
    captured = check(module, torch.randn(2, 1, 12, 12))
    assert captured.mutated == ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    module.eval()
    assert check(module, torch.randn(2, 1, 12, 12)).mutated == ()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(4, 4)
        self.decode = nn.Linear(4, 4)
        self.decode.weight = self.encode.weight
        self.fixed = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x):
        return self.decode(self.encode(x)) * self.fixed


def test_tied_parameters_appear_once():
    captured = check(Tied(), torch.randn(3, 4))
    assert captured.parameters == ("fixed", "encode.weight", "encode.bias", "decode.bias")
    assert captured.trainable == (False, True, True, True)


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x):
        h = self.a(x)
        with torch.no_grad():
            gate = self.b(h).sigmoid()
            self.average.mul_(0.5).add_(gate.mean(0))
            with torch.enable_grad():
                again = self.b(x)
        return h * gate + h.detach() * self.b(x) + h.data * 2 + again, self.average * 1


def test_gradients_stop_where_torch_stops_them():
    assert check(Cut(), torch.randn(3, 4)).mutated == ("average",)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x, counter):
        counter.add_(1)
        with torch.no_grad():
            self.scale.mul_(0.5)
        h = self.linear(x).clone()
        h[:, 1] = 0
        h[h > 1] = 1.0
        h[:, 2:].mul_(3)
        return h * self.scale


def test_writes_to_inputs_and_parameters_are_reported():
    module = InPlace()
    x, counter = torch.randn(3, 4), torch.zeros(2)
    captured = capture(module, (x, counter))
    assert captured.mutated == () and captured.mutated_parameters == ("scale",) and captured.mutated_inputs == (1,)
    parameters, buffers = values(module, captured)
    with jax.enable_x64(True):
        result = captured.evaluate(parameters, buffers, [x.numpy(), counter.numpy().copy()])
    expected = module(x, counter)
    np.testing.assert_allclose(result.outputs[0], expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.parameters[0], module.scale.detach().numpy())
    np.testing.assert_allclose(result.inputs[0], counter.numpy())


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    loss: torch.Tensor
    name: str


pytree.register_dataclass(Result)


class Structured(nn.Module):
    def forward(self, batch, scale=2, *, flag=True):
        x, (y,) = batch["x"], batch["y"]
        return Result(x * scale, (x - y).abs().sum() if flag else x.sum(), "ours"), [y, None, 3]


def test_structures_of_arguments_and_results():
    batch = {"x": torch.randn(2), "y": (torch.randn(2),)}
    captured = capture(Structured(), (batch,), {"flag": False})
    assert len(captured.inputs) == 2
    outputs, _ = captured([], [], [np.ones(2, np.float32), np.zeros(2, np.float32)], None)
    # Results that are no tensors are not computed: only the tensors are outputs, in the order of the structure.
    logits, loss, y = outputs
    np.testing.assert_array_equal(logits, [2, 2])
    assert float(loss) == 2
    np.testing.assert_array_equal(y, [0, 0])


def test_constants_of_the_module_are_kept():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.arange(6.0).reshape(2, 3)

        def forward(self, x):
            return x @ self.table + torch.tensor([1.0, 2.0, 3.0])

    check(Constant(), torch.randn(4, 2))


@pytest.mark.parametrize(
    "module",
    [
        nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
        nn.LSTM(3, 4, proj_size=2),
        nn.GRU(3, 4, bias=False),
        nn.GRU(3, 4, 2, bidirectional=True),
        nn.RNN(3, 4, nonlinearity="relu"),
        nn.RNN(3, 4, batch_first=True),
    ],
    ids=str,
)
def test_recurrent_layers_stay_whole(module):
    captured = check(module, torch.randn(5, 2, 3))
    assert len(captured.graph.nodes) < 40
    with jax.enable_x64(True):
        parameters, buffers = values(module, captured)
        text = str(jax.make_jaxpr(lambda x: captured(parameters, buffers, x)[0])(list(captured.inputs)))
    assert "scan" in text


@pytest.mark.parametrize("train", [True, False])
def test_transformer_layers(train):
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).train(train)
    check(encoder, torch.randn(2, 3, 8))


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.causal = causal

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.causal:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)


def test_attention_with_masks():
    keep = torch.rand(2, 1, 5, 5) > 0.3
    check(Attention(True), torch.randn(2, 5, 8), keep)
    check(Attention(False), torch.randn(2, 5, 8), keep)
    check(Attention(False), torch.randn(2, 5, 8), torch.randn(2, 1, 5, 5))


class Losses(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x, label, sign):
        h = self.linear(x)
        p = h.softmax(1)
        soft = torch.ones_like(p) / 5
        return [
            F.cross_entropy(h, label),
            F.cross_entropy(h, label, label_smoothing=0.1, ignore_index=2),
            F.cross_entropy(h, label, weight=torch.arange(1.0, 6.0)),
            F.cross_entropy(h, p.detach()),
            F.nll_loss(h.log_softmax(1), label, reduction="sum"),
            F.mse_loss(h, soft),
            F.l1_loss(h, soft, reduction="sum"),
            F.smooth_l1_loss(h, soft, beta=0.5),
            F.huber_loss(h, soft, delta=0.3),
            F.binary_cross_entropy(p, soft),
            F.binary_cross_entropy_with_logits(h, soft, pos_weight=torch.arange(1.0, 6.0)),
            F.kl_div(h.log_softmax(1), soft, reduction="batchmean"),
            F.kl_div(h.log_softmax(1), soft.log(), reduction="sum", log_target=True),
            F.poisson_nll_loss(h, soft, full=True),
            F.gaussian_nll_loss(h, soft, p),
            F.hinge_embedding_loss(h, sign[:, None]),
            F.margin_ranking_loss(h[:, 0], h[:, 1], sign, margin=0.2),
            F.cosine_embedding_loss(h, soft, sign),
            F.triplet_margin_loss(h, soft, h.flip(0)),
            F.soft_margin_loss(h[:, 0], sign),
            F.multi_margin_loss(h, label),
            F.multilabel_soft_margin_loss(h, soft),
            F.multilabel_margin_loss(h, torch.tensor([[1, 3, -1, 0, 0]] * 6)),
        ]


def test_losses():
    label = torch.tensor([0, 1, 2, 3, 4, 2])
    check(Losses(), torch.randn(6, 4), label, torch.tensor([1.0, -1, 1, 1, -1, -1]))


class Ctc(nn.Module):
    def __init__(self, lengths, **settings):
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.lengths, self.settings = lengths, settings

    def forward(self, x, labels):
        return F.ctc_loss(self.linear(x).log_softmax(-1), labels, *self.lengths, **self.settings)


@pytest.mark.parametrize(
    "labels, lengths, settings",
    [
        ([[1, 1, 2], [3, 4, 1]], ((8, 6), (3, 2)), {}),
        ([[0, 1, 2], [3, 0, 1]], (torch.tensor([8, 6]), torch.tensor([3, 2])), {"blank": 4, "reduction": "sum"}),
        ([1, 1, 2, 3, 4], ((8, 7), (3, 2)), {"reduction": "none"}),
        ([[1, 1, 2], [3, 3, 3]], ((8, 3), (3, 3)), {"zero_infinity": True}),
    ],
)
def test_connectionist_temporal_classification(labels, lengths, settings):
    check(Ctc(lengths, **settings), torch.randn(8, 2, 4), torch.tensor(labels))


def test_dropout_draws_from_the_key():
    module = nn.Sequential(nn.Dropout(0.4), nn.AlphaDropout(0.1), nn.Dropout2d(0.2))
    x = torch.ones(8, 16, 3, 3)
    captured = capture(module, (x,))
    assert captured.needs_key
    with jax.enable_x64(True):
        one, _ = captured([], [], [x.numpy()], jax.random.key(1))
        same, _ = captured([], [], [x.numpy()], jax.random.key(1))
        other, _ = captured([], [], [x.numpy()], jax.random.key(2))
        with pytest.raises(ValueError, match="random key"):
            captured([], [], [x.numpy()], None)
    np.testing.assert_array_equal(one[0], same[0])
    assert not np.array_equal(one[0], other[0])
    assert not capture(module.eval(), (x,)).needs_key


def test_random_tensors_have_their_distributions():
    class Noise(nn.Module):
        def forward(self, x):
            normal = torch.randn_like(x) * 2 + 1
            uniform = torch.empty_like(x).uniform_(-1, 3)
            exponential = torch.empty_like(x).exponential_(2.0)
            return normal, uniform, exponential, torch.bernoulli(x), torch.randint(0, 5, (4000,)), torch.randperm(10)

    x = torch.full((4000,), 0.25)
    captured = capture(Noise(), (x,))
    with jax.enable_x64(True):
        (normal, uniform, exponential, bernoulli, integers, permutation), _ = captured(
            [], [], [x.numpy()], jax.random.key(0)
        )
    assert abs(normal.mean() - 1) < 0.15 and abs(normal.std() - 2) < 0.1
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.1
    assert abs(exponential.mean() - 0.5) < 0.05 and exponential.min() > 0
    assert set(np.unique(bernoulli)) == {0, 1} and abs(bernoulli.mean() - 0.25) < 0.05
    assert integers.dtype == np.int64 and set(np.unique(integers)) == {0, 1, 2, 3, 4}
    assert sorted(permutation.tolist()) == list(range(10))


def test_half_precision():
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).half()
    check(module, torch.randn(5, 4).half(), rtol=2e-2, atol=2e-2)


def test_shapes_that_depend_on_data_are_refused_by_name_and_line():
    class Dynamic(nn.Module):
        def forward(self, x):
            return torch.nonzero(x).sum()

    with pytest.raises(UnsupportedError, match=r"aten::nonzero: the shape(.|\n)*test_module.py.*torch.nonzero"):
        capture(Dynamic(), (torch.ones(3),))


def test_masked_reads_and_branches_on_data_are_refused():
    class Masked(nn.Module):
        def forward(self, x):
            return x[x > 0].sum()

    class Branch(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(UnsupportedError, match=r"aten::index(.|\n)*depends on the data"):
        capture(Masked(), (torch.ones(3),))
    with pytest.raises(UnsupportedError, match="values in its"):
        capture(Branch(), (torch.ones(3),))


def test_an_unsupported_operation_is_refused_by_name_and_line():
    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x).abs()

    with pytest.raises(UnsupportedError, match=r"aten::_fft_r2c: (.|\n)*test_module.py.*torch.fft.rfft"):
        capture(Spectrum(), (torch.ones(4),))


def test_custom_operations_are_lowered_by_name():
    @torch.library.custom_op("openipu::identity", mutates_args=())
    def identity(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    identity.register_fake(torch.empty_like)

    @lowering("openipu::identity")
    def _identity(x):
        return x

    class Custom(nn.Module):
        def forward(self, x):
            return torch.ops.openipu.identity(x) + 1

    check(Custom(), torch.randn(3))
    with pytest.raises(ValueError, match="one lowering"):
        lowering("openipu::identity")(_identity)
    with pytest.raises(ValueError, match="namespace::name"):
        lowering("identity")


def test_tensorflow_is_not_imported():
    script = "import openipu.torch.capture.module, sys; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: self.linear(y).sin(), lambda y: y * self.linear.bias, (x,))


def test_branches_on_values():
    check(Branching(), torch.ones(2, 3))
    check(Branching(), -torch.ones(2, 3))


def test_loops_on_values():
    class Looping(nn.Module):
        def forward(self, x):
            return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2 + 1), (torch.tensor(0), x))

    check(Looping(), torch.randn(3))


def test_gradients_scaled_by_frequency_are_refused_by_name():
    captured = capture(torch.nn.Embedding(4, 2, scale_grad_by_freq=True), (torch.tensor([1, 1]),))
    with pytest.raises(UnsupportedError, match="scale_grad_by_freq"), jax.enable_x64(True):
        captured([np.zeros((4, 2), np.float32)], [], [np.array([1, 1])], None)
