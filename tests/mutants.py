"""Plausible defects, each with a test that must see it. Those of a batch stand in one copy of
the package, and no test of a batch runs the lines of the others'.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A defect.

    Attributes:
        file: in the package.
        old: a text that stands there once.
        new: what stands there instead.
        test: the test that must fail, as file and name.
        x64: whether that is one of double precision; of one batch all are alike.
    """

    file: str
    old: str
    new: str
    test: str
    x64: bool = True


BATCHES = {
    "formulas": (
        Mutant(  # columns after the last whole chunk are left out
            "core/operators/pairwise/triton_kernel.py",
            "rest = steps(lax.rem(count, np.int32(_CHUNK)),",
            "rest = steps(np.int32(0),",
            "core/test_pairwise.py::test_blocks_of_all_sizes_are_summed_whole[1025-257]",
        ),
        Mutant(  # an alignment that begins with any pair on the border of the table
            "kernels/global_alignment.py",
            "zero, [(1, -1, 0)]), lax.pad(exponent, lowest,",
            "zero + 1, [(1, -1, 0)]), lax.pad(exponent, 0 * lowest,",
            "kernels/test_series_and_graphs.py::test_it_is_the_sum_over_all_alignments_for_all_lengths_and_any_padding",
        ),
        Mutant(  # NaN taken for a distance of zero
            "kernels/stationary.py",
            "is_zero = size == 0",
            "is_zero = ~(size > 0)",
            "kernels/test_rough_gradients.py"
            "::test_a_rough_kernel_is_nan_at_a_point_with_nan[LpLaplace-2]",
        ),
        Mutant(  # labels of neighbours in the order of the edges
            "kernels/texts.py",
            "of_neighbours = [sorted(labels[other] for other in others) for others in neighbours]",
            "of_neighbours = [[labels[other] for other in others] for others in neighbours]",
            "kernels/test_series_and_graphs.py::test_nodes_in_another_order_are_the_same_graph",
        ),
        Mutant(  # an order of categories
            "kernels/integers.py",
            "return jnp.where(_index(s) == _index(t), 1, self.correlation)",
            "return jnp.where(_index(s) >= _index(t), 1, self.correlation)",
            "kernels/test_integers.py"
            "::test_categories_have_the_covariance_of_one_common_and_one_own_effect_each",
        ),
        Mutant(  # a threshold that is not in the set
            "metrics/split_conformal.py",
            "return 1 - others <= radius",
            "return 1 - others < radius",
            "metrics/test_criticism.py::test_a_class_whose_probability_is_the_threshold_is_in_the_set",
        ),
        Mutant(  # the value that was passed by an old keyword is lost
            "core/base/deprecation.py",
            "kwargs[new] = kwargs.pop(keyword)",
            "kwargs.pop(keyword)",
            "test_old_names.py::test_an_old_keyword_warns_once_and_does_what_the_new_one_does"
            "[two_sample_test permutations]",
        ),
        Mutant(  # quarters a month late
            "preparation/dates.py",
            'str(3 * int(parts.pop("quarter")) - 2)',
            'str(3 * int(parts.pop("quarter")) - 1)',
            "preparation/test_encoders.py::test_quarters_begin_in_january_april_july_and_october",
        ),
        Mutant(  # the number of points for the sum of their weights
            "supervised/ridge/ridge.py",
            "return jnp.sum(self.weights) * jnp.sum(self.weights[:, None]",
            "return len(self.weights) * jnp.sum(self.weights[:, None]",
            "supervised/test_ridge.py"
            "::test_generalised_cross_validation_of_weights_is_its_formula_with_their_sum",
        ),
        Mutant(  # L-BFGS sees the loss in the user's unit, whatever that is
            "selection/optimise/steps.py",
            "unit = jnp.where(state.step == 0, first, state.unit)",
            "unit = state.unit",
            "selection/test_minimise.py"
            "::test_lbfgs_takes_the_same_steps_whatever_the_scale_of_the_loss[1e-30]",
        ),
        Mutant(  # a squared distance of zero has no second derivative
            "core/base/numerics.py",
            "return jnp.where(s < 0, s - lax.stop_gradient(s), s)",
            "return jnp.maximum(s, 0)",
            "kernels/test_kernels.py::test_mixed_second_derivatives_at_coincident_points_are_exact[RBF-12]",
        ),
        Mutant(  # derivatives of rough kernels multiplied out about the mean of the points
            "core/base/numerics.py",
            "if rough or len(x) == 1:",
            "if rough and len(x) > _UNROLLED:",
            "kernels/test_rough_gradients.py"
            "::test_gradients_of_rough_kernels_are_exact_where_rows_differ_by_rounding[Matern12-3-one]",
        ),
        Mutant(  # substrings of one letter more
            "kernels/subsequences.py",
            "partial(_gapped, self.length - 1, _one_longer)",
            "partial(_gapped, self.length, _one_longer)",
            "kernels/test_strings.py::test_the_subsequence_kernel_has_the_papers_formulas",
        ),
        Mutant(  # a sign in a density
            "metrics/numbers.py",
            "(jnp.log(2 * jnp.pi * variance) + errors**2) / 2",
            "(jnp.log(2 * jnp.pi * variance) - errors**2) / 2",
            "metrics/test_metrics.py::test_the_predictive_density_is_that_of_normal_distributions",
        ),
        Mutant(  # half a density
            "core/kernel/prior_densities.py",
            "log_density + math.log(2), -jnp.inf",
            "log_density, -jnp.inf",
            "core/test_priors.py::test_densities_are_those_of_scipy_also_outside_the_support",
        ),
        Mutant(  # a fold that leaks
            "selection/choose/folds.py",
            "pairs += [(np.flatnonzero(parts != i), ",
            "pairs += [(np.flatnonzero(parts >= 0), ",
            "selection/test_cross_validation.py::test_every_row_is_scored_once_and_parts_differ_by_one_row",
        ),
        Mutant(  # an average of one step more
            "online/averages.py",
            "weight = (a + 1) / (steps.astype(mean.dtype) + a)",
            "weight = (a + 1) / (steps.astype(mean.dtype) + a + 1)",
            "online/test_online.py::test_an_average_is_the_mean_of_the_functions_after_every_step",
        ),
    ),
    "steps": (
        Mutant(  # the residual's bound on an error twice as large
            "supervised/error_bound.py",
            "distance = jnp.sqrt(self.ridge) / 2 * length",
            "distance = jnp.sqrt(self.ridge) * length",
            "supervised/test_error_bound.py::test_the_bound_of_one_point_is_its_error",
        ),
        Mutant(  # the diagonal is added to one that is there already
            "core/operators/pairwise/product.py",
            "(jnp.where(i == j, 0, k) if Z is None else k) * v",
            "k * v",
            "core/test_pairwise.py::test_the_diagonal_is_exact_in_registers[10]",
        ),
        Mutant(  # a traced call is compiled with options of its own, which JAX refuses
            "core/base/compiled.py",
            "if has_options and nothing_is_traced():",
            "if has_options:",
            "core/test_compiled.py::"
            "test_an_eager_call_on_a_gpu_compiles_with_options_and_a_traced_one_without",
        ),
        Mutant(  # the factors of a sum over all pairs are stored
            "core/base/numerics.py",
            "return None if tangents[0] is None else spread(tangents[0], x, z)",
            "return tangents[0]",
            "core/test_gram.py::test_gradients_in_numbers_of_a_kernel_hold_few_matrices",
        ),
        Mutant(  # derivatives in lengthscales are expanded around an origin
            "core/base/numerics.py",
            "if dx is None and dz is None and dl is not None:",
            "if False:",
            "core/test_gram.py::"
            "test_the_derivative_in_a_lengthscale_is_exact_however_far_the_points_reach",
        ),
        Mutant(  # distances from zero instead of the mean of the points
            "core/base/numerics.py",
            "(jnp.mean(z, 0), False)",
            "(jnp.zeros_like(z[0]), False)",
            "kernels/test_kernels.py"
            "::test_float32_in_many_dimensions_keeps_the_promise_for_scattered_points",
        ),
        Mutant(  # Newton's method without damping
            "core/losses/newton.py",
            "length = _length(slope, at_zero, at_one, skip=in_full)",
            "length = jnp.ones_like(at_zero)",
            "core/test_newton.py::test_damping_is_needed_and_works_where_full_newton_steps_diverge",
        ),
        Mutant(  # a prediction that returns NaN where the kernel is not finite
            "core/learner/expansion.py",
            "if is_concrete(sound) and not sound:",
            "if is_concrete(sound) and sound is None:",
            "core/test_expansion.py::test_a_prediction_where_the_kernel_is_not_finite_says_so",
        ),
        Mutant(  # a lower end of the spectrum as if the preconditioner were below the matrix
            "core/linalg/conjugate_gradient.py",
            "shift / near.root**2)",
            "shift / shift)",
            "core/test_lanczos.py"
            "::test_the_exact_mean_over_the_same_probes_is_in_the_bracket[pivots-6]",
        ),
        Mutant(  # conjugate gradients that believe the residual of their recurrence
            "core/linalg/krylov_factor.py",
            "true = self.b - self.multiply(x)",
            "true = now.at.residual",
            "core/test_krylov_factor.py::test_a_residual_that_is_rounding_ends_soon_and_is_no_success",
        ),
        Mutant(  # a gap that is learned from
            "selection/choose/folds.py",
            "[(np.arange(s - gap), ",
            "[(np.arange(s), ",
            "selection/test_cross_validation.py::test_time_folds_are_those_of_scikit_learn",
        ),
        Mutant(  # a walk that goes on where it should turn back
            "unsupervised/thinning.py",
            "alpha = -jnp.sum(D[p] * now.signs)",
            "alpha = jnp.sum(D[p] * now.signs)",
            "unsupervised/test_subsamples.py::test_every_decision_of_thinning_is_that_of_the_paper",
        ),
        Mutant(  # a float that is no parameter
            "kernels/stationary.py",
            '    alpha: Float[ParameterArray, ""] = positive(default=1.0)\n',
            "    alpha: float = 1.0\n",
            "testing/test_testing.py::test_every_public_kernel_conforms[RationalQuadratic]",
        ),
        Mutant(  # a fold that leaks, of stages of learning
            "selection/choose/folds.py",
            "in_others = (folds >= 0) & (folds != fold)",
            "in_others = folds >= 0",
            "selection/test_stages.py"
            "::test_folds_balance_every_class_and_those_of_some_rows_have_the_shape_of_those_of_all",
        ),
    ),
    "systems": (
        Mutant(  # a bound that leaves out the part of the error that no correction reaches
            "supervised/error_bound.py",
            "jnp.tensordot(root, self.remainder, 0)",
            "jnp.tensordot(root, 0 * self.remainder, 0)",
            "supervised/test_error_bound.py"
            "::test_columns_jit_and_vmap_give_the_bounds_of_single_calls",
        ),
        Mutant(  # the cotangent of a parameter is that of the first row
            "core/operators/pairwise/pairwise_sum.py",
            "jnp.sum(output, 0) if i < sizes[0] else output",
            "output[0] if i < sizes[0] else output",
            "core/test_pairwise.py::"
            "test_derivatives_of_a_sum_over_pairs_are_those_of_the_dense_sum[RBF]",
        ),
        Mutant(  # the first member of a batch for the one at fault
            "core/base/guards.py",
            "but {came} {outside[0]:g} in",
            "but {came} {array.ravel()[0]:g} in",
            "core/test_guards.py::test_of_a_batch_the_member_at_fault_is_named",
        ),
        Mutant(  # a process that is conditioned counted as one matrix
            "gp/regression.py",
            "    4.5,\n",
            "    1.0,\n",
            "test_memory.py::test_a_function_allocates_what_the_table_says_and_not_a_fifth_less"
            "[condition-1-]",
        ),
        Mutant(  # jitter of a hundredth
            "core/linalg/jitter.py",
            "return first * scale, 1e-4 * scale",
            "return first * scale, 1e-2 * scale",
            "core/test_linalg.py::test_jitter_never_exceeds_a_ten_thousandth_of_the_mean_diagonal",
        ),
        Mutant(  # the sign of a cavity
            "gp/expectation_propagation.py",
            "(marginal.mean - marginal.variance * site.shift) / left",
            "(marginal.mean + marginal.variance * site.shift) / left",
            "gp/test_approximate.py::test_expectation_propagation_of_one_point_is_exact[1.0]",
        ),
        Mutant(  # a tile on the diagonal that counts twice
            "core/operators/tiles.py",
            "jnp.where(again[None, :], 0, _times(of_rows, tile, 0))",
            "_times(of_rows, tile, 0)",
            "core/test_gram.py::test_tiles_that_fit_and_tiles_that_are_filled_give_the_dense_product",
        ),
        Mutant(  # no deviation without centring
            "unsupervised/centring.py",
            "gram.as_matrix() - means[:, None] - means[None, :] + jnp.sum(p * means)",
            "gram.as_matrix()",
            "unsupervised/test_components.py::test_functions_have_norm_one_are_orthogonal_and_of_mean_zero",
        ),
        Mutant(  # targets that are not softened
            "supervised/machines/decision_calibration.py",
            "wrong = 1 / (total + 2)",
            "wrong = 1e-9 / (total + 2)",
            "supervised/test_calibration.py::test_platts_sigmoid_maximises_the_likelihood_of_softened_targets",
        ),
        Mutant(  # any file is taken for what was written
            "files/archive.py",
            'if checksum(header["model"], header["notes"], arrays) != header["sha256"]:',
            "if False:",
            "files/test_files.py::test_a_damaged_file_is_an_error_or_loads_bitwise[0]",
        ),
    ),
    "small numbers": (
        Mutant(  # the density of a target far away as if its noise could not be larger
            "gp/heteroscedastic_likelihood.py",
            "right = jnp.minimum(peak + farthest, jnp.sqrt(2 * variance * (powers + rise)))",
            "right = farthest",
            "gp/test_heteroscedastic.py"
            "::test_the_density_of_a_target_keeps_its_digits_far_from_the_mean",
        ),
        Mutant(  # an interval far out as if it had no lower end
            "core/losses/ordinal_likelihood.py",
            "below_a = (excess_of_a - r * (excess_of_b + width)) / (1 - r)",
            "below_a = excess_of_a",
            "core/test_ordinal.py"
            "::test_probabilities_slopes_and_curvatures_keep_their_digits_in_both_tails",
        ),
        Mutant(  # values that are equal but for their rounding
            "supervised/machines/decision_calibration.py",
            "return centre, jnp.where(size > rounding, size, 0)",
            "return centre, size",
            "supervised/test_calibration.py::test_values_that_differ_by_their_rounding_alone_have_no_slope",
        ),
        Mutant(  # a line through places in any order
            "plot/beliefs.py",
            "    x = np.sort(x)\n",
            "",
            "plot/test_plot.py::test_the_line_of_a_profile_is_in_order_whatever_the_order_of_the_places",
        ),
        Mutant(  # nodes of a rule in single precision
            "core/losses/quadrature.py",
            "np.linspace(-reach, reach, n_nodes or default)",
            "np.linspace(-reach, reach, n_nodes or default, dtype=np.float32)",
            "core/test_likelihoods.py"
            "::test_nodes_and_weights_of_quadrature_are_computed_in_float64_and_rounded_once"
            "[float64]",
        ),
        Mutant(  # points that are off the other way
            "core/grid/toeplitz.py",
            "return values * self._times_slopes(V) - self._times_slopes(values * V)",
            "return self._times_slopes(values * V) - values * self._times_slopes(V)",
            "core/test_grid.py::test_offsets_of_points_are_taken_to_first_order",
        ),
        Mutant(  # the violation of one of two groups
            "supervised/machines/box_problem.py",
            "jnp.max(top - bottom)",
            "jnp.ravel(top - bottom)[0]",
            "supervised/test_nu_svm.py::test_one_class_while_tracing_has_no_numbers",
        ),
    ),
    "whole files": (
        Mutant(  # gradients of the points as the kernel sees them, for those of the points given
            "supervised/ridge/feature_machine.py",
            "M = matmul(factor.T, matmul(_outer_products(f, Z, shares), factor))",
            "M = _outer_products(f, Z, shares)",
            "supervised/test_feature_machine.py::test_rounds_are_those_of_the_formulas[False]",
        ),
        Mutant(  # a file that is written where the old one stands
            "core/base/whole_files.py",
            "write(unfinished)\n        os.replace(unfinished, target)",
            "write(target)",
            "test_faults.py::test_a_model_that_the_disk_has_no_room_for_leaves_the_old_one",
        ),
        Mutant(  # half a checkpoint stays on a full disk
            "core/checkpoint/checkpoint.py",
            "shutil.rmtree(unfinished, ignore_errors=True)",
            "pass",
            "test_faults.py::test_a_checkpoint_that_the_disk_has_no_room_for_leaves_the_one_before",
        ),
    ),
    "files": (
        Mutant(  # a tube that is twice as wide
            "supervised/machines/svm.py",
            "epsilon = jnp.maximum((biases[0] - biases[1]) / 2, 0)",
            "epsilon = jnp.maximum(biases[0] - biases[1], 0)",
            "supervised/test_nu_svm.py::test_the_gap_of_the_tube_is_that_of_the_widest_floats",
        ),
        Mutant(  # a fraction nu of the points for one of their weights
            "supervised/machines/svm.py",
            "half = nu * jnp.sum(weights) / 2",
            "half = nu * len(weights) / 2",
            "supervised/test_nu_svm.py::test_the_margin_is_one_for_a_fraction_nu_of_the_weights",
        ),
        Mutant(  # lags that are subtracted the wrong way round
            "core/grid/gridding.py",
            "offsets[numbers] = distances - lags[numbers]",
            "offsets[numbers] = lags[numbers] - distances",
            "core/test_grid.py::test_offsets_of_a_grid_are_those_of_its_points",
        ),
        Mutant(  # anything is taken for points
            "files/field_checks.py",
            "if not fits(value, field.type) or (is_tree_of_data and not is_of_arrays):",
            "if not fits(value, field.type):",
            "files/test_hostile_files.py::test_points_are_arrays[3]",
        ),
        Mutant(  # a list in place of a tuple of dimensions
            "files/field_checks.py",
            "if type(kept) is not type(value) or kept != value:",
            "if kept is None:",
            "files/test_hostile_files.py"
            "::test_a_field_of_another_type_is_refused_or_the_model_is_the_one_that_its_class_makes"
            "[kernels]",
        ),
        Mutant(  # coefficients for one output beside biases of three
            "files/predictor_files.py",
            "        check_shapes(model)\n",
            "",
            "files/test_hostile_files.py"
            "::test_coefficients_of_another_type_or_shape_are_refused_in_one_line"
            "[classes-one output]",
        ),
        Mutant(  # a file that was changed passes for what was written
            "core/checkpoint/sealed.py",
            "if files[name] != written[name]:",
            "if False:",
            "core/test_state_checkpoints.py"
            "::test_of_fifty_damaged_checkpoints_none_is_read_and_the_one_before_is_taken",
        ),
        Mutant(  # another learning rate passes for the same call
            "core/checkpoint/facts.py",
            "for name in others or programs[:1]:",
            "for name in others:",
            "selection/test_checkpoints.py"
            "::test_a_checkpoint_of_another_call_is_refused_by_what_differs_and_kept[rate]",
        ),
        Mutant(  # folders of the user that are removed
            "core/checkpoint/checkpoint.py",
            "if not _is_own(path):",
            "if False:",
            "core/test_state_checkpoints.py"
            "::test_something_else_of_the_name_of_a_checkpoint_is_refused_and_stays"
            "[folder of notes-9.removed]",
        ),
    ),
    "weights": (
        Mutant(  # the slope of a site of the log variance as if each weight were one
            "gp/heteroscedastic.py",
            "return Sites(precision, precision * (mean + 1) - self.weights / 2)",
            "return Sites(precision, precision * (mean + 1) - 1 / 2)",
            "gp/test_heteroscedastic.py"
            "::test_the_bound_is_the_largest_over_all_normal_distributions_of_both_functions",
        ),
        Mutant(  # a derivative in a large shape
            "core/base/special_functions.py",
            "(1 / (1 + v) + v * remainder)",
            "(1 / (1 + v) - v * remainder)",
            "core/test_special_functions.py"
            "::test_a_rational_quadratic_of_large_alpha_keeps_the_digits_of_its_derivatives",
        ),
        Mutant(  # a weight that counts twice
            "core/base/weights.py",
            "self.roots[:, None] * K * self.roots[None, :]",
            "self.weights[:, None] * K * self.weights[None, :]",
            "supervised/test_ridge.py::test_weights_have_the_value_of_the_reference",
        ),
        Mutant(  # pi instead of 2 pi
            "core/linalg/density.py",
            "log_tau = math.log(2 * math.pi)",
            "log_tau = math.log(math.pi)",
            "gp/test_gp.py::test_one_observation_in_closed_form",
        ),
        Mutant(  # noise of the matrix that passes for a pivot
            "core/linalg/cholesky.py",
            "jnp.all(main_diagonal(upper) ** 2 > least)",
            "jnp.all(main_diagonal(upper) ** 2 > 0)",
            "core/test_linalg.py::test_a_pivot_of_rounding_is_no_pivot",
        ),
        Mutant(  # what later points say, with the wrong sign
            "core/line/kalman.py",
            "return (innovations - later) / self.variances[:, None]",
            "return (innovations + later) / self.variances[:, None]",
            "core/test_state_space.py"
            "::test_the_line_gives_the_answers_of_the_whole_matrix_without_weights",
        ),
        Mutant(  # a residual that moves away
            "supervised/machines/smo.py",
            "residual = now.residual - problem.part_product(indices, change)",
            "residual = now.residual + problem.part_product(indices, change)",
            "supervised/test_svm.py::test_a_working_set_smaller_than_the_free_vectors_still_converges",
        ),
        Mutant(  # steps in float32 that no longer help
            "supervised/machines/smo.py",
            "helps = error <= violated / 10",
            "helps = jnp.isfinite(error)",
            "supervised/test_svm.py"
            "::test_steps_in_float64_take_over_where_float32_rounds_slopes_too_much",
        ),
        Mutant(  # a sum that rounding in float32 loses
            "supervised/machines/smo.py",
            "beta = _with_totals(problem, now.beta, indices, beta)",
            "beta = beta + 0",
            "supervised/test_svm.py"
            "::test_steps_in_float32_give_the_solution_of_float64_and_keep_the_sum",
        ),
        Mutant(  # steps beyond the last one
            "supervised/machines/working_set.py",
            "steps = jnp.minimum(_CHECK_EVERY, most - run.steps)",
            "steps = jnp.asarray(_CHECK_EVERY, jnp.int32)",
            "supervised/test_svm.py::test_no_step_is_taken_beyond_the_last_one_in_a_batch_of_gradients",
        ),
        Mutant(  # a wrong active set, whose equations are solved exactly, for the solution
            "supervised/machines/dual_fit.py",
            "done = (closed & optimal) | missed",
            "done = closed | missed",
            "supervised/test_svm.py"
            "::test_a_differentiated_machine_is_solved_on_where_its_active_set_was_wrong",
        ),
        Mutant(  # a gap that rounding hides
            "supervised/machines/certificate.py",
            "return lax.cond(bound > tol * problem.scale, estimate, lambda: bound)",
            "return 0 * bound",
            "supervised/test_svm.py::test_rounding_that_hides_the_gap_is_seen_for_each_member_of_a_batch_of_gradients",
        ),
    ),
    "failures": (
        Mutant(  # a class more than there are intervals
            "core/base/labels.py",
            "np.isin(values, np.arange(n_classes))",
            "np.isin(values, np.arange(n_classes + 1))",
            "core/test_ordinal.py::test_bad_parameters_and_bad_classes_are_refused_by_name",
        ),
        Mutant(  # an iteration that calls anything solved
            "core/linalg/iteration.py",
            "close = residual <= jnp.where(stuck, 2, 1) * goal",
            "close = residual <= jnp.inf",
            "core/test_linalg.py::test_a_cap_on_the_steps_is_reported",
        ),
        Mutant(  # a success with a bias that is never looked at
            "supervised/ridge/ridge.py",
            "(~(residual <= most), RESULTS.inaccurate),",
            "(~(residual <= jnp.inf), RESULTS.inaccurate),",
            "supervised/test_ridge.py::test_a_success_with_a_bias_is_one_of_the_fit_and_not_of_the_two_columns"
            "_solved_for",
        ),
        Mutant(  # a check of finite numbers that is left out
            "core/linalg/eigenproblem.py",
            "(~(finite & report.is_finite()), RESULTS.nonfinite),",
            "(jnp.array(False), RESULTS.nonfinite),",
            "contract/test_values.py::test_members_that_fail_say_so_and_have_no_numbers[kernel_pca]",
        ),
        Mutant(  # another
            "core/operators/operators.py",
            "return jnp.all(jnp.isfinite(means))",
            "return jnp.array(True)",
            "contract/test_values.py"
            "::test_members_that_fail_say_so_and_have_no_numbers[import_vector_machine]",
        ),
        Mutant(  # a point on the boundary that passes for right
            "online/multiplicative.py",
            "return jnp.where(y * f <= 0, y, 0)",
            "return jnp.where(y * f < 0, y, 0)",
            "online/test_winnow.py::test_winnow_makes_the_mistakes_of_its_definition_one_by_one",
        ),
        Mutant(  # a term of a sum that is divided by the wrong number
            "sparse/precision_steps.py",
            "(q**2 / (active.precisions + s) - jnp.log1p(s / active.precisions)) / 2",
            "(q**2 / (active.precisions + s) - jnp.log1p(active.precisions / s)) / 2",
            "sparse/test_relevance.py"
            "::test_functions_and_evidence_are_those_of_the_sequential_algorithm_in_numpy",
        ),
        Mutant(  # one failure of a batch that silences the warning about others
            "core/base/solution.py",
            "    if jitter is not None and not quiet:\n",
            "    if jitter is not None and np.all(successful) and not quiet:\n",
            "core/test_solution.py::test_only_jitter_of_solves_that_succeeded_is_warned_of",
        ),
        Mutant(  # the complement of a target that is rounded to one
            "supervised/machines/decision_calibration.py",
            "pull = self.weights * self.unlikely",
            "pull = self.weights * (1 - self.likely)",
            "supervised/test_calibration.py"
            "::test_separated_scores_of_two_values_have_the_sigmoid_in_closed_form[7-1e+16]",
        ),
    ),
    "centres": (
        Mutant(  # weights advised for missing targets that are a mask of two columns
            "core/learner/learner_problem.py",
            'else "np.isfinite(y).all(1)"',
            'else "np.isfinite(y)"',
            "core/test_boundary.py::test_the_weights_advised_for_missing_targets_are_taken[None-2]",
        ),
        Mutant(  # a check that calls positive what the compiled program takes for zero
            "core/base/intervals.py",
            "return np.where(is_subnormal, np.zeros_like(values), values)",
            "return values",
            "core/test_boundary.py::test_checks_see_the_zeros_that_compiled_programs_compute_with",
        ),
        Mutant(  # a quadrature that ends before its derivative does
            "kernels/matern.py",
            "jnp.maximum(excess, _least_square(nu.dtype))",
            "jnp.maximum(excess, 1e-5)",
            "core/test_special_functions.py"
            "::test_slopes_of_a_matern_are_right_however_small_the_distance",
        ),
        Mutant(  # too few terms of a large order
            "kernels/matern.py",
            "_DEBYE_TERMS = 8",
            "_DEBYE_TERMS = 3",
            "core/test_special_functions.py"
            "::test_a_matern_of_large_order_is_that_of_mpmath_on_both_sides_of_the_seam",
        ),
        Mutant(  # random pivots that forget what the ones before explain
            "core/linalg/pivots.py",
            "logarithms = jnp.where(possible, jnp.log(positive_or_one(now.left)), -jnp.inf)",
            "logarithms = jnp.where(now.free, jnp.log(positive_or_one(diagonal)), -jnp.inf)",
            "scale/test_nystrom.py::test_random_pivots_are_drawn_with_the_chances_of_what_is_left",
        ),
        Mutant(  # tiles that are all kept for the backward pass
            "scale/centres/row_sums.py",
            "scan(jax.checkpoint(with_tile), start, parts)",
            "scan(with_tile, start, parts)",
            "scale/test_falkon.py::test_memory_does_not_grow_with_the_product_of_points_and_centres",
        ),
        Mutant(  # expectation propagation without damping
            "gp/sites.py",
            "damping = jnp.where(change < now.change, longer, damping / 2)",
            "damping = longer",
            "gp/test_approximate.py::test_damping_ends_steps_that_no_longer_help",
        ),
        Mutant(  # weights squared over centres
            "scale/centres/row_sums.py",
            "weights * jnp.where((weights > 0) | jnp.isfinite(values), values, 0)",
            "weights**2 * jnp.where((weights > 0) | jnp.isfinite(values), values, 0)",
            "contract/test_values.py::test_a_weight_is_as_many_points_at_one_place[falkon]",
        ),
        Mutant(  # negative eigenvalues of a graph that are a failure
            "unsupervised/graphs.py",
            "truncated=truncated, allowed=n)",
            "truncated=truncated)",
            "unsupervised/test_clusters.py"
            "::test_eigenvectors_of_a_graph_with_negative_eigenvalues_need_a_small_residual",
        ),
        Mutant(  # squares of the entries of T, which leave the range of floats
            "supervised/ridge/tridiagonal.py",
            "shifts - off * (off / before)",
            "shifts - off**2 / before",
            "supervised/test_ridge.py"
            "::test_a_common_factor_of_weights_and_ridge_changes_nothing[path-1e-300]",
        ),
        Mutant(  # a solve in units of a right-hand side that is as large as the weights
            "core/linalg/weighted_solve.py",
            "unit = own_unit(B, 0)",
            "unit = own_unit(rhs, 0)",
            "supervised/test_ridge.py"
            "::test_a_common_factor_of_weights_and_ridge_changes_nothing[dense-1e-300]",
        ),
        Mutant(  # the penalty of jitter for all of |a|^2, a bias among it
            "scale/centres/problem.py",
            "jnp.where(of_centres, a, 0) ** 2",
            "a**2",
            "scale/test_falkon.py"
            "::test_the_penalty_of_jitter_is_in_units_of_the_targets_and_leaves_out_a_bias",
        ),
        Mutant(  # half of the memory that a function takes
            "unsupervised/mercer.py",
            '"eigenpairs", 2.1',
            '"eigenpairs", 1.05',
            "test_memory.py::test_a_function_allocates_what_the_table_says_and_not_a_fifth_less"
            "[eigenpairs-1-]",
        ),
        Mutant(  # a solver whose tolerance is a constant of the program
            "supervised/machines/dual_solver.py",
            "return with_arrays(default if solver is None else solver)",
            "return default if solver is None else solver",
            "contract/test_traces.py::test_a_number_of_any_kind_does_not_trace_again[one_class_svm]",
        ),
    ),
    "contract of learners": (
        Mutant(  # a ridge out of range is too much rounding
            "unsupervised/canonical_correlations.py",
            "finite = finite & ~jnp.isnan(rounding)",
            "finite = finite & True",
            "contract/test_values.py::test_members_that_fail_say_so_and_have_no_numbers[kernel_cca]",
        ),
        Mutant(  # a path of no points, or of negative weights
            "supervised/ridge/ridge_path.py",
            "given = given & jnp.all(problem.weights.values >= 0)",
            "given = given & True",
            "contract/test_values.py::test_members_that_fail_say_so_and_have_no_numbers[ridge_path]",
        ),
        Mutant(  # decision values that are not known have a slope of zero
            "supervised/machines/decision_calibration.py",
            "jnp.isfinite(slope + jnp.sum(y)) & jnp.isfinite(centre)",
            "jnp.isfinite(slope + jnp.sum(y))",
            "contract/test_values.py::test_members_that_fail_say_so_and_have_no_numbers[platt]",
        ),
        Mutant(  # or are the largest
            "supervised/machines/decision_calibration.py",
            "jnp.isfinite(jnp.sum(y)) & jnp.all(jnp.isfinite(f))",
            "jnp.isfinite(jnp.sum(y))",
            "contract/test_values.py::test_members_that_fail_say_so_and_have_no_numbers[isotonic]",
        ),
        Mutant(  # no weight counts more than ten times
            "supervised/machines/svm.py",
            "bound = C * problem.weights.values",
            "bound = C * jnp.minimum(problem.weights.values, 10)",
            "contract/test_values.py"
            "::test_a_weight_is_as_many_points_at_one_place[nu_support_vector_regression]",
        ),
        Mutant(  # a class of all points
            "supervised/machines/svm.py",
            "high = problem.weights.values",
            "high = jnp.ones_like(problem.weights.values)",
            "contract/test_values.py::test_where_a_point_of_weight_zero_is_says_nothing"
            "[one_class_svm]",
        ),
        Mutant(  # the same: in the unit of the weights 25 is 25 / 32
            "supervised/machines/lasso.py",
            "weighted = w[:, None] * centred.features",
            "weighted = jnp.minimum(data.weights, 0.7)[:, None] * centred.features",
            "contract/test_values.py::test_a_weight_is_as_many_points_at_one_place[lasso]",
        ),
        Mutant(  # points that are not present are learned from
            "online/stream.py",
            "new = tree_where(is_present, new, arrays)",
            "new = tree_where(is_present | True, new, arrays)",
            "contract/test_values.py::test_where_a_point_of_weight_zero_is_says_nothing[Adagrad]",
        ),
        Mutant(  # a density of every point once
            "gp/collapsed.py",
            "jnp.sum(seen.weights * jnp.log(2 * math.pi * seen.noise))",
            "jnp.sum(jnp.log(2 * math.pi * seen.noise) + 0 * seen.weights)",
            "contract/test_values.py"
            "::test_a_member_with_points_of_weight_zero_is_the_fit_without_them[sgpr_bound]",
        ),
        Mutant(  # the mean of all points, removed ones among them
            "unsupervised/herding.py",
            "w = problem.weights.values\n    centred",
            "w = jnp.ones_like(problem.weights.values)\n    centred",
            "contract/test_values.py::test_where_a_point_of_weight_zero_is_says_nothing[herding]",
        ),
        Mutant(  # values of a head whose solve has failed
            "nn/heads.py",
            "return values * jnp.where(success, 1, jnp.nan).astype(values.dtype)",
            "return jnp.nan_to_num(values)",
            "contract/test_values.py"
            "::test_members_that_fail_say_so_and_have_no_numbers[ridge head]",
        ),
        Mutant(  # a weight of zero without a derivative in standards
            "preparation/standards.py",
            "counts = present | (abs(rest) < reach)",
            "counts = present",
            "contract/test_gradients.py::test_derivatives_in_a_batch_are_those_of_differences"
            "[standardised ridge]",
        ),
        Mutant(  # a derivative that forgets the norm of K
            "selection/choose/alignment.py",
            "_along_targets(K, Y, problem) / roots",
            "_along_targets(K, Y, problem) / stop_gradient(roots)",
            "contract/test_gradients.py::test_derivatives_in_a_batch_are_those_of_differences"
            "[alignment]",
        ),
        Mutant(  # a rate may be negative
            "online/perceptron.py",
            'problem.scalar(rate, "rate", POSITIVE, throw=throw)',
            'problem.scalar(rate, "rate", REAL, throw=throw)',
            "contract/test_bad_input.py::test_what_is_no_input_is_refused_by_name"
            "[kernel_perceptron-a number out of range]",
        ),
    ),
    "contract of precision": (
        Mutant(  # points that weigh two are no pair among themselves
            "unsupervised/goodness_of_fit.py",
            "total = pairs + jnp.sum(w * (w - 1) * jnp.diagonal(K))",
            "total = pairs",
            "contract/test_values.py::test_a_weight_is_as_many_points_at_one_place[stein_discrepancy]",
        ),
        Mutant(  # degrees that count removed points
            "unsupervised/graphs.py",
            "degrees = gram.mv(weights)",
            "degrees = gram.mv(jnp.ones_like(weights))",
            "contract/test_values.py::test_where_a_point_of_weight_zero_is_says_nothing"
            "[spectral_clustering]",
        ),
        Mutant(  # probabilities in double precision whatever the values are
            "supervised/machines/decision_calibration.py",
            "probabilities = jnp.diagonal(largest)",
            "probabilities = jnp.diagonal(largest).astype(float)",
            "contract/test_dtypes.py::test_what_is_learned_has_the_precision_of_the_points"
            "[isotonic]",
        ),
    ),
    "estimators": (
        Mutant(  # the last round in place of the best
            "supervised/ridge/feature_machine.py",
            "best = jnp.argmin(jnp.where(jnp.isnan(errors), jnp.inf, errors))",
            "best = n_rounds - 1",
            "supervised/test_feature_machine.py"
            "::test_a_metric_that_makes_errors_larger_is_not_returned",
        ),
        Mutant(  # a mean diagonal that counts points without a weight
            "core/base/weights.py",
            "counted = present | ~jnp.any(present)",
            "counted = present | (self.weights >= 0)",
            "core/test_linalg.py::test_jitter_is_that_of_the_points_with_a_weight[_jitter_of_path]",
        ),
        Mutant(  # the derivative of a standard deviation in place of that of its square
            "sklearn/theta.py",
            "slopes[a.path] = np.round(np.log(ratio))",
            "slopes[a.path] = np.minimum(np.round(np.log(ratio)), 1)",
            "sklearn/test_sklearn_learning.py::test_gradients_in_theta_are_those_of_scikit_learn",
        ),
        Mutant(  # the variance of the entries that a sparse table holds, without its zeros
            "sklearn/sparse_tables.py",
            "(count - len(values)) * mean**2",
            "0 * mean**2",
            "sklearn/test_sklearn_sparse.py::test_gamma_scale_of_sparse_rows_is_that_of_all_their_entries",
        ),
    ),
    "factors": (
        Mutant(  # a density without rounding errors
            "core/linalg/cholesky.py",
            "def rounding(self, diagonal):\n"
            "        return rounding_of_entries(self.solve, diagonal)",
            "def rounding(self, diagonal):\n        return 0 * jnp.sum(diagonal)",
            "core/test_seam.py::test_every_factor_answers_as_the_dense_matrix_or_has_a_bad_status"
            "[cholesky-unit weights]",
        ),
        Mutant(  # the largest noise for that of all points
            "core/grid/grid_factor.py",
            "end.whole.exists & end.is_positive & is_same",
            "end.whole.exists & end.is_positive",
            "core/test_seam.py::test_every_factor_answers_as_the_dense_matrix_or_has_a_bad_status"
            "[at regular times-unit weights]",
        ),
    ),
    "rounding": (
        Mutant(  # half of a bracket that is needed whole
            "core/linalg/lanczos.py",
            "(above - below) / 2 + slack",
            "(above - below) / 4 + slack",
            "core/test_lanczos.py"
            "::test_the_exact_mean_over_the_same_probes_is_in_the_bracket[none-4]",
        ),
        Mutant(  # a metric whose scale follows the unit of the targets
            "supervised/ridge/feature_machine.py",
            "scaled = M * (wanted / jnp.where(is_known, present, 1))",
            "scaled = M",
            "supervised/test_feature_machine.py::test_rounds_are_those_of_the_formulas[True]",
        ),
        Mutant(  # coefficients of classes balanced after their values are computed
            "core/losses/softmax_mode.py",
            "return super().at(balanced(x))",
            "return Iterate(balanced(x), self.values(x))",
            "supervised/test_logistic.py"
            "::test_coefficients_of_classes_are_balanced_before_they_are_judged",
        ),
        Mutant(  # rounding of correlations that does not know the weights
            "unsupervised/canonical_correlations.py",
            "size = self.centred.largest() * jnp.sum(self.system.weights.values)",
            "size = self.centred.largest() * len(self.system.weights.values)",
            "unsupervised/test_components.py::test_the_rounding_of_correlations_counts_the_weights",
        ),
    ),
    "range of single precision": (
        Mutant(  # a success whose evidence has no digit
            "gp/laplace_classes.py",
            "known_evidence = jnp.where(is_known, log_evidence, jnp.nan)",
            "known_evidence = log_evidence",
            "gp/test_gp_classes.py::test_evidence_whose_rounding_is_not_finite_is_no_success",
            x64=False,
        ),
        Mutant(  # weights near the least floats in units of one
            "core/base/weights.py",
            "jnp.full_like(exponents, 2)",
            "jnp.full_like(exponents, 1 << 20)",
            "supervised/test_logistic.py"
            "::test_weights_near_the_ends_of_the_range_of_floats_are_weights_as_others_are",
            x64=False,
        ),
    ),
    "boundary": (
        Mutant(  # points of one number along those of several
            "core/base/boundary.py",
            "1 in (math.prod(shape), math.prod(other))",
            "0 in (math.prod(shape), math.prod(other))",
            "core/test_expansion.py"
            "::test_no_kernel_broadcasts_points_of_one_number_along_those_of_several",
        ),
        Mutant(  # a derivative of zero where the value is NaN
            "core/base/intervals.py",
            "return value * where_or(is_inside, jnp.ones_like(value), jnp.nan)",
            "return where_or(is_inside, value, jnp.nan)",
            "core/test_guards.py"
            "::test_the_derivative_outside_of_an_interval_is_nan_and_no_optimum[evidence]",
        ),
        Mutant(  # a lengthscale that acts as a larger one, without a word
            "core/kernel/kernel.py",
            "(flushed(lengths) > 0) & (lengths < least)",
            "(flushed(lengths) > 0) & (lengths < 0)",
            "kernels/test_kernels.py::test_a_lengthscale_that_acts_as_a_larger_one_is_told",
        ),
    ),
    "precision of products": (
        Mutant(  # products with far points, which round their differences away
            "core/kernel/mahalanobis.py",
            "if self.kernel.is_stationary:",
            "if False:",
            "supervised/test_feature_machine.py"
            "::test_a_metric_far_from_the_origin_keeps_the_digits_of_differences",
            False,
        ),
        Mutant(  # products in whatever precision the device likes
            "core/base/numerics.py",
            "jnp.matmul(A, B, precision=lax.Precision.HIGHEST)",
            "jnp.matmul(A, B)",
            "core/test_precision.py::test_no_product_leaves_the_precision_to_the_device[condition]",
            x64=False,
        ),
    ),
}
