#!/usr/bin/env bash
# Train on a Slurm cluster for longer than one job may take: saved before the time is over, requeued,
# and continued where it was.
#
#   sbatch examples/slurm.sh                          # kdist train, in runs/kdist
#   sbatch examples/slurm.sh --recipe thorough        # with settings of yours
#   sbatch --job-name=mine examples/slurm.sh python train.py     # a script of yours
#
# A script of yours needs Checkpoint("checkpoints", preemption=["SIGTERM", "SIGUSR1"]) in `fit`.
#
#SBATCH --job-name=kdist
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
# Two minutes before the time is over, SIGUSR1 to the training: longer than a step and a save.
#SBATCH --signal=USR1@120
# Slurm itself starts the job anew after a preemption or a failure of the machine.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out

set -u

run=${RUN:-runs/${SLURM_JOB_NAME:-kdist}}
most_restarts=${MOST_RESTARTS:-100}

(( $# )) || set -- --recipe accurate
if [[ $1 != -* ]]; then
    command=("$@")
elif [[ -f $run/config.json ]]; then # it was begun before
    command=(kdist train --resume "$run")
else
    command=(kdist train "$@" --run-dir "$run" --checkpoint-every 300 --preemption-signal SIGUSR1)
fi

status=0
srun "${command[@]}" || status=$?

# 138 = 128 + SIGUSR1: it was saved because the time is over. After SIGTERM (143) Slurm requeues the
# job itself, or it was cancelled; any other status is an error, which would come again.
if (( status == 138 )); then
    if (( ${SLURM_RESTART_COUNT:-0} < most_restarts )); then
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "restarted ${SLURM_RESTART_COUNT} times: not requeued" >&2
    fi
fi
exit "$status"
