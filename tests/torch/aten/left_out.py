"""What of PyTorch's table of functions the lowering is not compared with, reviewed, and why."""

_RANDOM = "draws random numbers: only distributions can be compared, which tests/torch/capture/test_module.py does"
_EMPTY = "its result holds whatever was in memory"
_COMPLEX = "complex numbers: IPUs have none, and the reference page leaves them and FFT out"
_DYNAMIC = "the shape or program depends on data: refused, which tests/torch/capture/test_module.py checks"
_SPARSE = "sparse tensors: the reference page leaves them out"
_GPU = "runs on GPUs only"
_FACTORS = "matrix factorisation: not among the operations of the reference page"
_ERRORS = "torch ties its check of success to the order of effects; lowered whole in a capture (test_linalg.py)"
_INTERCEPTED = "cannot be traced, so a capture replaces it; compared in tests/torch/capture/test_module.py"
_COMPOSED = "composed of functions compared here; all agreed when tried"
_SPECIAL = "special function of numerics, not among the operations of the reference page"
_RARE = "not among the operations of the reference page, and no ordinary module produces it"
_TWICE = "the samples write one place twice; torch gives both a gradient, JAX the one that stayed"

LEFT_OUT = {
    **dict.fromkeys(
        [
            "bernoulli",
            "cauchy",
            "exponential",
            "geometric",
            "log_normal",
            "multinomial",
            "nn.functional.alpha_dropout",
            "nn.functional.dropout",
            "nn.functional.dropout2d",
            "nn.functional.dropout3d",
            "nn.functional.feature_alpha_dropout.with_train",
            "nn.functional.rrelu",
            "normal",
            "normal.in_place",
            "normal.number_mean",
            "rand_like",
            "randint",
            "randint_like",
            "randn",
            "randn_like",
            "uniform",
            "nn.functional.multi_head_attention_forward",
        ],
        _RANDOM,
    ),
    **dict.fromkeys(
        ["empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"],
        _EMPTY,
    ),
    **dict.fromkeys(
        [
            "cdouble",
            "cfloat",
            "chalf",
            "complex",
            "polar",
            "stft",
            "view_as_complex",
        ],
        _COMPLEX,
    ),
    **dict.fromkeys(
        [
            "allclose",
            "argwhere",
            "combinations",
            "corrcoef",
            "cov",
            "equal",
            "item",
            "masked_select",
            "nonzero",
            "nonzero_static",
            "resize_as_",
            "tensor_split",
            "unique",
            "unique_consecutive",
        ],
        _DYNAMIC,
    ),
    **dict.fromkeys(
        [
            "sparse.mm.reduce",
            "sparse.sampled_addmm",
            "to_sparse",
        ],
        _SPARSE,
    ),
    **dict.fromkeys(
        [
            "_segment_reduce.lengths",
            "_segment_reduce.offsets",
            "as_strided_scatter",
            "frexp",
            "grid_sampler_3d",
            "hash_tensor",
            "histc",
            "histogram",
            "histogramdd",
            "mode",
            "nextafter",
            "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d",
            "nn.functional.linear_cross_entropy.chunked",
            "nn.functional.linear_cross_entropy.chunked_none",
            "put",
        ],
        _RARE,
    ),
    **dict.fromkeys(["nn.functional.max_unpool2d", "nn.functional.max_unpool3d"], _TWICE),
    "_upsample_bilinear2d_aa": "antialiased resampling: not among the operations of the reference page",
    "digamma": "its gradient differs from torch's at a negative argument, where no module takes it",
    "nn.functional.ctc_loss": _INTERCEPTED,
    "nn.functional.gaussian_nll_loss": _INTERCEPTED,
    "linalg.cholesky": _ERRORS,
    "linalg.det": _ERRORS,
    "linalg.inv": _ERRORS,
    "linalg.slogdet": _ERRORS,
    "linalg.solve": _ERRORS,
    "linalg.tensorinv": _ERRORS,
    "linalg.tensorsolve": _ERRORS,
}

# By the beginning of the name.
LEFT_OUT_FAMILIES = {
    "polygamma": _SPECIAL,
    "special.polygamma": _SPECIAL,
    "special.airy_ai": _SPECIAL,
    "special.bessel_j0": _SPECIAL,
    "special.bessel_j1": _SPECIAL,
    "special.bessel_y0": _SPECIAL,
    "special.bessel_y1": _SPECIAL,
    "special.chebyshev_polynomial": _SPECIAL,
    "special.erfcx": _SPECIAL,
    "special.hermite_polynomial": _SPECIAL,
    "special.laguerre_polynomial": _SPECIAL,
    "special.legendre_polynomial": _SPECIAL,
    "special.log_ndtr": _SPECIAL,
    "special.modified_bessel": _SPECIAL,
    "special.scaled_modified_bessel": _SPECIAL,
    "special.shifted_chebyshev": _SPECIAL,
    "special.spherical_bessel": _SPECIAL,
    "special.zeta": _SPECIAL,
    "masked.": _COMPOSED,
    "signal.": _COMPOSED,
    "pca_lowrank": _FACTORS,
    "fft.": _COMPLEX,
    "jiterator_": _GPU,
    "igamma": _SPECIAL,
    "cholesky": _FACTORS,
    "geqrf": _FACTORS,
    "logdet": _FACTORS,
    "lu": _FACTORS,
    "norm.nuc": _FACTORS,
    "ormqr": _FACTORS,
    "pinverse": _FACTORS,
    "qr": _FACTORS,
    "svd": _FACTORS,
    "triangular_solve": _FACTORS,
    "linalg.cholesky_ex": _FACTORS,
    "linalg.cond": _FACTORS,
    "linalg.eig": _FACTORS,
    "linalg.householder_product": _FACTORS,
    "linalg.inv_ex": _FACTORS,
    "linalg.ldl_": _FACTORS,
    "linalg.lstsq": _FACTORS,
    "linalg.lu": _FACTORS,
    "linalg.matrix_rank": _FACTORS,
    "linalg.pinv": _FACTORS,
    "linalg.qr": _FACTORS,
    "linalg.solve_ex": _FACTORS,
    "linalg.svd": _FACTORS,
    "matrix_exp": _FACTORS,
}


def reason(name):
    """Why a function is left out, or None."""
    if name in LEFT_OUT:
        return LEFT_OUT[name]
    return next((why for start, why in LEFT_OUT_FAMILIES.items() if name.startswith(start)), None)
