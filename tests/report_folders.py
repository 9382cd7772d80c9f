"""Hand-made run and sweep folders."""

import csv
import json

from kdist.study.experiment import POINT_COLUMNS
from kdist.study.search_results import TRIAL_COLUMNS
from kdist.study.search_settings import Search
from kdist.study.study_folder import FORMAT, StudyFolder
from kdist.training.config import TrainConfig

SUMMARY = {
    "replicas": 1,
    "learning_rate": 0.05,
    "parameters": 78378,
    "data": "the embedded sample",
    "training_images": 512,
    "validation_images": 1000,
    "interrupted": False,
    "versions": {"kdist": "0.1.0", "python": "3.11.7"},
}


def write_run(
    folder, accuracies=(0.5, 0.8, 0.9), *, rates=(50.0, 110.0, 90.0), extra=None, **given
):
    """A run folder of `kdist train`; `extra` are more columns, `given` are settings."""
    folder.mkdir(parents=True)
    config = TrainConfig(**{"epochs": len(accuracies) or 1, "patience": 1} | given)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    replicas = config.replicas or 1
    rows = [
        {
            "epoch": at + 1,
            "seconds": 10.0 * (at + 1),
            "images_per_sec": rates[at % len(rates)],
            "loss": 2 - accuracy,
            "accuracy": accuracy - 0.05,
            "val_loss": 2.1 - accuracy,
            "val_accuracy": accuracy,
            "learning_rate": 0.05,
            "replicas": replicas,
            "global_batch": replicas * config.batch_size,
        }
        | {name: values[at] for name, values in (extra or {}).items()}
        for at, accuracy in enumerate(accuracies)
    ]
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0] if rows else ["epoch", "seconds"])
        writer.writeheader()
        writer.writerows(rows)
    summary = SUMMARY | {
        "val_accuracy": accuracies[-1] if accuracies else None,
        "best_val_accuracy": max(accuracies, default=None),
        "images_per_sec": 100.0,
        "seconds": 10.0 * len(accuracies) + 0.5,
        "epochs": len(accuracies),
        "replicas": replicas,
        "devices": [f"CPU:{index}" for index in range(replicas)],
        "device_names": ["Old Processor"] * replicas,
        "global_batch": replicas * config.batch_size,
    }
    beaten = "".join("x" if one > config.target_accuracy else "." for one in accuracies)
    first = beaten.find("x" * config.patience)
    if first >= 0 and (config.model is None or config.monitor):
        summary |= {"met_epoch": first + 1, "met_seconds": 10.0 * (first + 1)}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def write_sweep(folder, kind, rows, **about):
    """A sweep folder with the points `rows`; a row's `run` is the accuracies of its run folder."""
    folder.mkdir(parents=True)
    whole = {
        "format": FORMAT,
        "kind": kind,
        "settings": {"train": {"depth": 10, "target_accuracy": 0.85}, "rounds": 2},
        "machine": {"cpu": "Old Processor", "cores": 2, "devices": ["CPU:0 Old Processor"]},
    }
    (folder / "study.json").write_text(json.dumps(whole | about))
    written = []
    for number, given in enumerate(rows):
        row = dict.fromkeys(POINT_COLUMNS)
        row |= {"name": f"p{number}", "kind": kind, "status": "done"}
        row |= {name: value for name, value in given.items() if name != "run"}
        if "run" in given:
            run = folder / "points" / row["name"] / "run"
            write_run(run, given["run"], batch_size=row["batch_size"], seed=row["seed"] or 0)
            row["run_dir"] = str(run.relative_to(folder))
            summary = json.loads((run / "summary.json").read_text())
            summary["met_seconds"] = row["seconds_to_target"]
            (run / "summary.json").write_text(json.dumps(summary))
        written.append(row)
    (folder / "points.json").write_text(json.dumps(written))
    return folder


def throughput_rows(replicas=(1, 2), batches=(8, 16, 32, 64), rounds=2):
    """Steps that take 50 ms and 2 ms an image, the second round 10 % slower."""
    return [
        {
            "name": f"b{batch}-r{count}-round{turn + 1}",
            "batch_size": batch,
            "replicas": count,
            "global_batch": batch * count,
            "round": turn + 1,
            "images_per_step": batch * count,
            "images_per_sec": batch * count / (0.05 + 0.002 * batch * count) / (1 + 0.1 * turn),
        }
        for turn in range(rounds)
        for count in replicas
        for batch in batches
    ]


def accuracy_rows():
    """Two rules by three batches by three seeds; large batches without a rule learn too little."""
    rows = []
    for rule in ("linear", "none"):
        for batch in (32, 64, 128):
            for seed in range(3):
                best = 0.9 - 0.01 * seed - (batch / 1600 if rule == "none" else batch / 6400)
                there = best > 0.85
                rows.append(
                    {
                        "name": f"b{batch}-{rule}-seed{seed}",
                        "batch_size": batch,
                        "replicas": 1,
                        "global_batch": batch,
                        "lr_rule": rule,
                        "seed": seed,
                        "images_per_sec": 400.0 + batch,
                        "seconds": 30.5,
                        "epochs": 3,
                        "reached_target": there,
                        "seconds_to_target": 30.0 - seed if there else None,
                        "epochs_to_target": 3 if there else None,
                        "val_accuracy": best,
                        "best_val_accuracy": best,
                        "run": (0.5, 0.7, best),
                    }
                )
    return rows


def scaling_rows():
    """One, two and four replicas, weak scaling, each 10 % below the ideal of the one before."""
    return [
        {
            "name": f"weak-r{count}-round{turn + 1}",
            "batch_size": 32,
            "replicas": count,
            "global_batch": 32 * count,
            "mode": "weak",
            "round": turn + 1,
            "images_per_step": 32 * count,
            "images_per_sec": 100.0 * count * 0.9**at * (1 + 0.02 * turn),
        }
        for turn in range(2)
        for at, count in enumerate((1, 2, 4))
    ]


def write_search(folder, trials, **settings):
    """A folder of `kdist tune`; of each trial its values and, if it failed, its error."""
    search = Search(**{"space": SPACE, "config": TrainConfig(depth=10, width=1)} | settings)
    study = StudyFolder(folder, "trial")
    with study.open(search.info):
        study.write_rows(
            [
                dict.fromkeys(TRIAL_COLUMNS)
                | {"name": f"trial-{number}", "status": "done"}
                | {"best_val_accuracy": trial.get("score")}
                | trial
                for number, trial in enumerate(trials)
            ]
        )
    return folder


SPACE = {
    "base_lr": {"min": 0.001, "max": 0.1, "sampling": "log"},
    "batch_size": [16, 32],
    "dropout": {"min": 0.0, "max": 0.3},
}


def search_trials():
    """Six trials, not of several dropouts; the last failed."""
    rates = (0.001, 0.003, 0.01, 0.03, 0.05, 0.1)
    trials = [
        {
            "values": {"base_lr": rate, "batch_size": (16, 32)[at % 2], "dropout": 0.1},
            "score": 0.9 - abs(rate - 0.03),
            "seconds": 10.0 + at,
            "epochs": 3,
        }
        for at, rate in enumerate(rates)
    ]
    failed = {"status": "failed", "error": "the loss was not finite: epoch 1, step 4"}
    trials[5] = {"values": trials[5]["values"]} | failed
    return trials
