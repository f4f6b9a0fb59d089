"""The fixed-kernel reconstruction problem against autograd, loops, dense matrices and known curves."""

import numpy as np
import pytest
import torch

from netvitals_lab.papers.gate_density import reconstruction as rec

f64 = {"dtype": torch.float64}


def problem(alphas=(1.0, 5.0, 20.0), name="sobel_x", size=8, **options):
    picture = rec.target("checkerboard", size, 2)
    return rec.Reconstruction(torch.tensor(alphas, **f64), rec.kernel(name), picture, **options)


@pytest.mark.parametrize("padding", ["zero", "circular"])
def test_adjoint_and_gradient_match_autograd(padding):
    p = problem(padding=padding)
    x, u = torch.rand(3, 8, 8, **f64), torch.randn(3, 8, 8, **f64)
    assert torch.allclose((p.blur(x) * u).sum((-1, -2)), (x * p.blur(u, adjoint=True)).sum((-1, -2)))
    x.requires_grad_()
    (auto,) = torch.autograd.grad(p.loss(p.forward(x)).sum(), x)
    assert torch.allclose(p.gradient(x.detach())[0], auto, atol=1e-12)
    second = rec.kernel("avg_blur")
    (auto,) = torch.autograd.grad(p.loss(p.two_layers(x, second)[0]).sum(), x)
    assert torch.allclose(p.gradient_two_layers(x.detach(), second)[0], auto, atol=1e-12)


def test_blur_is_the_convolution():
    p = problem((2.0,), "laplacian")
    x = torch.rand(1, 8, 8, **f64)
    conv = torch.nn.functional.conv2d(x[:, None], rec.kernel("laplacian")[None, None], padding=1)[:, 0]
    assert torch.allclose(p.blur(x), conv)
    dense = rec.dense_operator(p)
    assert torch.allclose((dense @ x.flatten()).reshape(8, 8), conv[0])


@pytest.mark.parametrize(("name", "norm"), [("avg_blur", 1.0), ("laplacian", 8.0), ("sobel_x", 8.0)])
def test_spectral_norms_of_the_kernels(name, norm):
    p = rec.Reconstruction(torch.ones(1, **f64), rec.kernel(name), rec.target("stripes", 16, 4), padding="circular")
    assert float(torch.linalg.matrix_norm(rec.dense_operator(p), 2)) == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("method", [m for m in rec.METHODS if m != "lbfgsb"])
def test_batch_equals_the_loop(method):
    alphas = (1.0, 5.0, 20.0)
    batch = problem(alphas)
    x0 = batch.start()
    together = rec.solve(batch, x0, method, iterations=20)
    for i, a in enumerate(alphas):
        alone = rec.solve(problem((a,)), x0[i : i + 1], method, iterations=20)
        assert torch.allclose(together.x[i], alone.x[0], atol=1e-12)
        assert float(together.loss[i]) == pytest.approx(float(alone.loss[0]))


@pytest.mark.parametrize("method", rec.METHODS)
def test_every_method_descends_inside_the_box(method):
    p = problem((2.0, 5.0))
    s = rec.solve(p, p.start(), method, iterations=60)
    assert bool((s.reduction > 0.1).all()) and float(s.x.min()) >= 0 and float(s.x.max()) <= 1


@pytest.mark.parametrize("name", rec.KERNELS)
@pytest.mark.parametrize("method", [m for m in rec.METHODS if m != "lbfgsb"])
def test_flat_buffers_take_the_plain_steps(name, method):
    """Few steps: beyond, Sobel at a fixed rate is chaotic and amplifies the last digit."""
    p, _ = rec.grid([1.0, 5.0, 20.0], 2, [rec.kernel(name)], rec.target("disc", 12))
    x0 = p.start()
    fast, plain = (rec.solve(p, x0, method, iterations=6, trace=trace) for trace in (False, True))
    assert plain.losses.shape == (6, 6)
    assert torch.allclose(fast.x, plain.x, atol=1e-9), float((fast.x - plain.x).abs().max())


def test_chunks_do_not_touch_each_other():
    p, _ = rec.grid([1.0, 5.0, 20.0, 60.0], 10, [rec.kernel("sobel_x")], rec.target("checkerboard", 64, 8))
    x0 = p.start()
    together, alone = rec.solve(p, x0, iterations=4).x, rec.solve(p.part(slice(17, 18)), x0[17:18], iterations=4).x
    assert torch.allclose(together[17], alone[0], rtol=1e-12, atol=1e-12)


def test_the_second_layer_is_solved_by_every_method():
    p, second = problem((2.0, 5.0)), rec.kernel("avg_blur")
    for method in rec.METHODS:
        s = rec.solve(p, p.start(), method, iterations=30, second=second)
        h = p.two_layers(s.x, second)[0]
        assert torch.allclose(s.loss, p.loss(h)) and bool((s.reduction > 0).all()), method


def test_noise_is_seen_by_the_descent_and_not_by_the_score():
    clean = problem((5.0,))
    seen = rec.noisy(clean.y, 15.0, seed=1)
    assert float((seen - clean.y).square().mean() / clean.y.square().mean()) == pytest.approx(10**-1.5, rel=0.3)
    p = rec.Reconstruction(clean.alpha, clean.kernels, clean.y, observed=seen)
    x = p.start()
    assert not torch.allclose(p.gradient(x)[0], clean.gradient(x)[0])
    assert torch.equal(p.iou(p.forward(x)), clean.iou(clean.forward(x)))
    assert torch.allclose(rec.solve(p, x, iterations=5).x, rec.solve(p, x, iterations=5, trace=True).x)


def test_other_activations_gate_by_their_derivative():
    p = problem((10.0,))
    x0 = p.start()
    plain, through_autograd = rec.solve(p, x0, iterations=30), rec.solve_activation(p, x0, "sigmoid", iterations=30)
    assert torch.allclose(plain.x, through_autograd.x, atol=1e-6)
    assert torch.allclose(plain.active, through_autograd.active, atol=2 / plain.x[0].numel())  # a gate at the floor
    relu = rec.solve_activation(p, x0, "relu", iterations=30)
    z = p.blur(relu.x) - p.c
    assert float(relu.active) == pytest.approx(float((z > 0).double().mean()))


def test_a_joint_kernel_descends_in_both():
    p = problem((5.0, 10.0))
    k0 = torch.stack([rec.kernel("random_norm", seed=s) for s in range(2)])
    v = rec.solve_joint(p, p.start(), k0, iterations=40)
    start = p.loss(p.sigmoid(p.blur(p.start(), kernels=k0)))
    assert bool((v.loss < start).all()) and not torch.allclose(v.kernels, k0)
    assert float(v.x.min()) >= 0 and float(v.x.max()) <= 1


def test_restarts_spread_in_the_null_space_only():
    p = problem((5.0, 5.0), padding="circular")
    x = p.start(torch.zeros(2))
    moved = torch.stack([x[0], x[1] + 0.25])  # Sobel does not see a constant
    s = rec.spread(p, moved)
    assert s.inputs == pytest.approx(0.25) and s.outputs < 1e-12
    plane = rec.landscape(p, x, points=5)
    assert plane.shape == (2, 5, 5) and torch.allclose(plane[:, 2, 2], p.loss(p.forward(x)))


def test_laws_say_when_they_cannot_be_fitted():
    with pytest.raises(ValueError, match="needs 3"):
        rec.depth_law([1, 2, 3], [1, 1, 1], [1, 1, 0])
    flat = rec.layer_profile([0.5, 0.5, 0.6, 0.5], 10)
    assert flat.r2 <= 0.01 and flat.front is None
    assert rec.difficulty_features([1.0], [8.0], [True]).tolist()[0] == pytest.approx(
        [np.log(2), 8, 1, 1, 8 * np.log(2)]
    )


def test_several_kernels_in_one_batch():
    names = ["identity", "avg_blur", "laplacian"]
    p, keys = rec.grid([5.0], 2, [rec.kernel(n) for n in names], rec.target("checkerboard", 8, 2))
    x = p.start(torch.tensor([k[2] for k in keys]))
    for i, (k, a, _) in enumerate(keys):
        one = problem((a,), names[k])
        assert torch.allclose(p.forward(x)[i], one.forward(x[i : i + 1])[0])


def test_gates_are_the_derivative_and_the_active_share_counts_them():
    p = problem((4.0,))
    z = torch.randn(1, 8, 8, **f64).requires_grad_()
    (d,) = torch.autograd.grad(p.sigmoid(z).sum(), z)
    h = p.sigmoid(z.detach())
    assert torch.allclose(p.gates(h), d)
    assert float(p.active(h)[0]) == pytest.approx(float((d > rec.GATE_FLOOR).double().mean()))


def test_loss_is_smallest_near_alpha_three_to_five_and_gates_close():
    p, _ = rec.grid([1.0, 3.0, 20.0, 60.0], 1, [rec.kernel("sobel_x")], rec.target("checkerboard", 32, 8))
    s = rec.solve(p, p.start(torch.zeros(4)), "adam", iterations=120)
    assert int(s.loss.argmin()) == 1
    assert bool((s.active.diff() <= 1e-9).all()) and float(s.active[-1]) < 0.2


def test_phase_fit_recovers_known_parameters_and_flags_the_fourth():
    alpha = np.array([1, 1.5, 2, 3, 5, 7, 10, 13, 16, 20, 25, 30, 40, 60.0])
    rng = np.random.default_rng(0)
    iou = rec.curve(alpha, 0.782, 28.97, 6.29)[:, None] + rng.normal(0, 0.004, (14, 20))
    fit, four = rec.fit_phase(alpha, iou), rec.fit_phase(alpha, iou, 4)
    assert (fit.floor, fit.midpoint, fit.width) == pytest.approx((0.782, 28.97, 6.29), rel=0.05)
    assert fit.condition == pytest.approx(3.0e4, rel=0.1)  # the paper's value for this curve
    assert four.condition > 3 * fit.condition  # the fourth parameter is nearly collinear
    median, (low, high) = rec.bootstrap_midpoint(alpha, iou, resamples=60)
    assert low < 28.97 < high and low < median < high
    assert abs(fit.midpoint - 28.97) < 4 * fit.crlb[1]
    assert rec.bands(alpha, iou)["alpha50"] == 30.0


def test_the_onset_is_before_the_midpoint_and_gives_the_papers_exponent():
    alpha = np.array([1, 1.5, 2, 3, 5, 7, 10, 13, 16, 20, 25, 30, 40, 60.0])
    curve = rec.curve(alpha, 0.782, 28.97, 6.29)  # the paper's own fit at 64 × 64
    found = rec.finite_size_exponent(alpha, curve)
    assert found.onset == pytest.approx(17.2, abs=0.1) and 0.030 <= found.exponent <= 0.0435 and not found.at_bound
    assert rec.finite_size_exponent(alpha, curve, retained=0.81).onset == pytest.approx(19.85, abs=0.05)  # N13
    assert rec.finite_size_exponent(alpha, curve, retained=0.5).onset == pytest.approx(28.97, abs=0.05)
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        rec.finite_size_exponent(alpha, curve, retained=1.0)


def test_a_pinned_exponent_is_flagged():
    alpha = np.linspace(1, 40, 14)
    step = rec.curve(alpha, 0.5, 20.0, 0.3)
    assert rec.finite_size_exponent(alpha, step, bounds=(0.05, 2.0)).at_bound


def test_jacobian_loses_rank_as_the_sigmoid_stiffens():
    p = problem((1.0, 20.0, 60.0), size=16)
    report = rec.jacobian(p, rec.solve(p, p.start(torch.zeros(3)), "adam", iterations=80).x)
    assert bool((report.stable_rank.diff() < 0).all())
    assert int(report.null_dimension[-1]) >= int(report.null_dimension[0])


def test_lemma_a1_is_false_and_its_correction_holds():
    gen = torch.Generator().manual_seed(0)
    a = torch.randn(4000, 4, 4, generator=gen, **f64)
    h, y = torch.rand(4000, 4, generator=gen, **f64), torch.randint(0, 2, (4000, 4), generator=gen).double()
    check = rec.gradient_bound(a, h, y, alpha=5.0)
    assert check.printed_violations > 0 and float(check.printed.max()) > 1
    assert check.corrected_violations == 0


def test_theorem_a2_is_false_and_its_correction_holds():
    p = rec.Reconstruction(torch.ones(1, **f64), rec.kernel("sobel_x"), rec.target("checkerboard", 16, 4))
    h = p.forward(torch.rand(1, 16, 16, **f64))
    assert float(p.active(h)) > rec.active_bound(1.0)  # every gate is above the floor at alpha = 1
    stiff = problem((30.0,), size=16)
    z = torch.linspace(-1, 2, 256, **f64).reshape(1, 16, 16)
    active = stiff.gates(stiff.sigmoid(z)) > rec.GATE_FLOOR
    assert torch.equal(active, (z - 0.5).abs() < rec.active_width(30.0))


def test_depth_law_pieces():
    p = problem((20.0,), size=16)
    x = p.start()
    assert 0 < rec.depth_bound(20.0, rec.kernel("sobel_x")) < 1
    assert abs(float(rec.gate_correlation(p, x, rec.kernel("avg_blur"))[0])) <= 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: problem((0.0,)), "positive"),
        (lambda: problem((float("nan"),)), "positive"),
        (lambda: problem((float("inf"),)), "finite"),
        (lambda: problem(c=-0.1), r"inside \(0, 1\)"),
        (lambda: rec.target("stripes", 8, block=0), "at least 1 pixel"),
        (lambda: rec.grid([], 2, [rec.kernel("sobel_x")], rec.target("stripes", 8)), "a grid needs"),
        (lambda: rec.solve(problem(), torch.zeros(2, 8, 8)), "the start has shape"),
        (lambda: problem(c=1.0), r"inside \(0, 1\)"),
        (lambda: rec.Reconstruction(torch.ones(1), rec.kernel("sobel_x"), torch.full((8, 8), 0.5)), "binary"),
        (lambda: problem(size=2), "smaller than the kernel"),
        (lambda: problem(padding="reflect"), "padding is"),
        (lambda: rec.kernel("gabor"), "there is no kernel"),
        (lambda: rec.target("cat", 8), "there is no target"),
        (lambda: rec.solve(problem(), problem().start(), "rprop"), "there is no method"),
        (lambda: rec.solve_activation(problem(), problem().start(), "selu"), "there is no activation"),
        (lambda: rec.solve_joint(problem(), problem().start(), rec.kernel("sobel_x")), "one 3 × 3 kernel"),
        (
            lambda: rec.Reconstruction(
                torch.ones(1), rec.kernel("sobel_x"), torch.ones(8, 8), observed=torch.ones(4, 4)
            ),
            "not of the target's size",
        ),
        (lambda: rec.spread(problem((1.0,)), problem((1.0,)).start()), "at least 2 restarts"),
    ],
)
def test_wrong_input_gets_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_information_bound_is_the_covariance_of_least_squares():
    """I = JᵀJ/s², so errors grow with the noise itself: twice the residuals, twice the bound."""
    from scipy.optimize import curve_fit

    alpha = np.array([1, 2, 3, 5, 7, 10, 13, 16, 20, 25, 30, 40, 60.0])
    noise = np.random.default_rng(1).normal(0, 0.004, alpha.size)
    bounds = []
    for size in (1.0, 2.0):
        iou = rec.curve(alpha, 0.78, 25.0, 6.0) + size * noise
        fit = rec.fit_phase(alpha, iou)
        _, covariance = curve_fit(rec.curve, alpha, iou, p0=[fit.floor, fit.midpoint, fit.width])
        assert fit.crlb == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-3)
        bounds.append(fit.crlb)
    assert bounds[1] == pytest.approx(2 * bounds[0], rel=0.15)


def test_a_joint_kernel_is_scored_with_the_kernel_it_found():
    p = problem((20.0, 40.0))
    k0 = torch.stack([rec.kernel("random_norm", seed=s) for s in range(2)])
    v = rec.solve_joint(p, p.start(), k0, iterations=40)
    with_its_own, with_the_fixed = (
        (p.alpha[:, None, None] * h * (1 - h) > rec.GATE_FLOOR).double().mean((-1, -2))
        for h in (p.sigmoid(p.blur(v.x, kernels=v.kernels)), p.forward(v.x))
    )
    assert torch.allclose(v.active, with_its_own)
    assert not torch.allclose(with_its_own, with_the_fixed)  # else the test could not fail


def test_an_unbounded_activation_answers_with_slope_one_at_any_stiffness():
    """f(α(z − c))/α: for ReLU stiffness then changes nothing at all."""
    soft, stiff = problem((1.0,)), problem((30.0,))
    x0 = soft.start()
    one, two = (rec.solve_activation(p, x0, "relu", iterations=40) for p in (soft, stiff))
    assert torch.allclose(one.x, two.x, atol=1e-9) and torch.allclose(one.loss, two.loss)
