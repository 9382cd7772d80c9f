"""Many small calls, as of reinforcement learning: kdist on 1 and 2 replicas beside stock Keras.

    python benchmarks/small_calls.py        # a minute on two cores

A policy network of two dense layers predicts one observation, fits 32 of them, and is called
directly, thousands of times. Prints milliseconds of each call, and the median ratio to stock Keras
of rounds that alternate.
"""

import argparse
import statistics

import interleaved
import kdist
import keras
import numpy as np

CALLS = {"predict of 1": 40, "fit of 32": 40, "train_on_batch of 32": 200, "predict_on_batch": 200}


def policy() -> keras.Model:
    """Return the network, compiled."""
    model = keras.Sequential(
        [keras.Input((4,)), *(keras.layers.Dense(64, activation="relu") for _ in range(2))]
    )
    model.add(keras.layers.Dense(2))
    return model


def calls(model: keras.Model) -> dict:
    """Return what is timed, by name."""
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 4)).astype("float32"), np.zeros((32, 2), "float32")
    works = {
        "predict of 1": lambda: model.predict(x[:1], verbose=0),
        "fit of 32": lambda: model.fit(x, y, epochs=1, verbose=0),
        "train_on_batch of 32": lambda: model.train_on_batch(x, y),
        "predict_on_batch": lambda: model.predict_on_batch(x[:1]),
    }

    def repeated(name: str):
        return lambda: [works[name]() for _ in range(CALLS[name])]

    return {name: repeated(name) for name in works}


def main() -> None:
    """Time all calls in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    strategies = {n: kdist.MirroredStrategy(replicas=n) for n in (2, 1)}
    models = {"stock Keras": policy()}
    models |= {f"kdist on {n}": strategies[n].build(policy) for n in (1, 2)}
    works = {name: calls(model) for name, model in models.items()}
    print("| | " + " | ".join(models) + " | on 1 : stock | on 2 : stock |")
    print("| --- |" + " --- |" * (len(models) + 2))
    for call, count in CALLS.items():
        for name in models:
            works[name][call]()
        times = interleaved.rounds(
            {name: interleaved.timed(works[name][call]) for name in models}, options.rounds
        )
        cells = [f"{1000 * statistics.median(times[name]) / count:.2f} ms" for name in models]
        stock = times["stock Keras"]
        for n in (1, 2):
            ratios = [a / b for a, b in zip(times[f"kdist on {n}"], stock, strict=True)]
            cells.append(interleaved.spread(ratios))
        print(f"| {call} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
