#!/usr/bin/env bash
# Train one model on several nodes of a Slurm cluster: saved before the time is over, requeued then and
# when a worker is lost, and continued where it was.
#
#   sbatch examples/slurm_multi_node.sh train.py                       # two nodes of four GPUs
#   sbatch --nodes=8 --ntasks-per-node=1 examples/slurm_multi_node.sh train.py --epochs 90
#
# train.py makes a kdist.MultiWorkerMirroredStrategy, and has
# Checkpoint("checkpoints", preemption=["SIGTERM", "SIGUSR1"]) in `fit`. The first node alone uses the folder; after
# a requeue that may be another node, so the folder is on a disk that all nodes share.
#
#SBATCH --job-name=kdist
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
# Two minutes before the time is over, SIGUSR1 to the workers: longer than a step and a save.
#SBATCH --signal=USR1@120
# Slurm itself starts the job anew after a preemption or the failure of a node.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out

set -u

most_restarts=${MOST_RESTARTS:-20}

(( $# )) || { echo "usage: sbatch $0 train.py [its arguments]" >&2; exit 2; }

# A task per GPU is a worker. When one fails, the others end by themselves: were they killed by Slurm, srun's
# status would be that, and not the one that says what happened.
export KDIST_START_TIMEOUT_SECONDS=300
export KDIST_HANG_SECONDS=600
status=0
srun --kill-on-bad-exit=0 python "$@" || status=$?

# 138 = 128 + SIGUSR1: it was saved because the time is over. 75: another worker was lost, 124: no step has
# ended for long, 137: a worker was killed. Any other status is an error, which would
# come again; add yours here if it would not.
case $status in
75 | 124 | 137 | 138)
    if (( ${SLURM_RESTART_COUNT:-0} < most_restarts )); then
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "restarted ${SLURM_RESTART_COUNT} times: not requeued" >&2
    fi
    ;;
esac
exit "$status"
