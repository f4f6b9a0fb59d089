"""Elementwise functions of torch that are no activations, with the reason for each.

Names stand for the function, the method of a tensor and, with a ``_`` behind, what works in place.
"""

from __future__ import annotations

from collections.abc import Mapping

_BY_REASON: Mapping[str, str] = {
    "it keeps every value: only the copy, the layout, the dtype or the way to autograd changes": """
        alias_copy as_tensor asarray atleast_1d atleast_2d atleast_3d bfloat16 clone conj conj_physical contiguous cpu
        dequantize detach detach_copy double float from_dlpack half positive real requires_grad_ resolve_conj
        resolve_neg slice_copy squeeze squeeze_copy sym_sum tensor to to_dense Identity""",
    "it turns numbers into whole numbers, truth values or complex ones, through which no gradient goes": """
        bool byte cdouble cfloat chalf char int isfinite isinf isnan isneginf isposinf isreal logical_not long short
        signbit""",
    "it is affine, so that it moves with the layer before it": """
        deg2rad neg negative rad2deg""",
    "it is constant between its steps: its derivative is zero wherever it exists": """
        angle ceil fix floor round sgn sign trunc""",
    "it draws random numbers or fills in constants, whatever the values are": """
        bernoulli cauchy_ exponential_ log_normal_ normal normal_ ones_like rand_like randn_like random_ uniform_
        zero_ zeros_like""",
    "it drops entries at random and hands on the others: what produced its input still decides": """
        dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout
        Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout""",
    "it is arithmetic of norms, losses, statistics and position codes; to have it seen as an activation, put it into a "
    "module with elementwise = True": """
        abs absolute acos acosh arccos arccosh arcsin arcsinh arctanh asin asinh atanh cos cosh erfc exp exp2 expm1 frac
        log log10 log1p log2 nan_to_num reciprocal rsqrt sinc sinh sqrt square tan""",
    "it keeps or drops an entry, or puts it elsewhere, by its place and not by its value": """
        block_diag chain_matmul tril triu ChannelShuffle Flatten""",
    "it cuts at bounds that are mostly a guard; with a bound of zero below, capture sees the ReLU that it is": """
        clamp clip clamp_min clamp_max""",
    "it is a special function of probability and physics, which no layer of torch uses": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erfcx erfinv gammaln i0 i0e i1 i1e lgamma log_ndtr
        logit modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 ndtr ndtri
        psi scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0""",
}

#: Name of the function, method or module class → why it is no activation.
IGNORED: Mapping[str, str] = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
