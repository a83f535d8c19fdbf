"""Creates the tuner that a job asks for."""

from autosched_backend_autotvm.options import Options
from autosched_backend_autotvm.tuners import Tuner
from autosched_backend_autotvm.tuners.annealing import Plan
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.genetic import Breeding, GeneticTuner
from autosched_backend_autotvm.tuners.grid_and_random import GridTuner, RandomTuner
from autosched_backend_autotvm.tuners.model_based import Learning, ModelBasedTuner, Prior, Reranker


def tuner_of(
    options: Options, points: ConfigSampler, seed: int, threads: int, prior: Prior | None, reranker: Reranker | None
) -> Tuner:
    """Returns a tuner without measurements. Only `xgb` uses `prior` and `reranker`."""
    match options.tuner:
        case "grid":
            return GridTuner(points)
        case "random":
            return RandomTuner(points, seed)
        case "ga":
            breeding = Breeding(options.ga_pop_size, options.ga_elite_num, options.ga_mutation_prob)
            return GeneticTuner(points, seed, breeding)
        case "xgb":
            return ModelBasedTuner(points, seed, learning(options, threads), prior, reranker)


def learning(options: Options, threads: int) -> Learning:
    """Returns the parameters of `xgb`."""
    return Learning(
        plan_size=options.plan_size,
        epsilon=options.epsilon,
        diversity_filter_ratio=options.diversity_filter_ratio,
        loss=options.loss_type,
        warm_up=options.num_warmup_samples,
        chains=options.sa_parallel_size,
        plan=Plan(options.sa_n_iter, options.sa_temp, options.sa_early_stop),
        threads=threads,
    )
