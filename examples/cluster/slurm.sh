#!/bin/bash
# A search on an allocation of Slurm: Ray on every node, with the token of your home folder, and the driver on the first.
# From the project's folder, where `make setup` was run; docs/slurm.md says what to change.
#   sbatch examples/cluster/slurm.sh birds.yaml --runs /shared/runs
#SBATCH --job-name=holdout
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --time=24:00:00
#SBATCH --requeue
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}"
. .venv/bin/activate
export RAY_AUTH_MODE=token
(umask 077; ray get-auth-token --generate > /dev/null)  # writes ~/.ray/auth_token unless it exists

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
ip=$(getent ahostsv4 "$head" | awk '{print $1; exit}')
port=$((20000 + SLURM_JOB_ID % 10000))  # other jobs may share the node
export RAY_ADDRESS=$ip:$port

trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT
ray=(ray start --num-cpus="$SLURM_CPUS_PER_TASK" --disable-usage-stats --block)
env --unset=RAY_ADDRESS srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    "${ray[@]}" --head --node-ip-address="$ip" --port="$port" --include-dashboard=false > "slurm-$SLURM_JOB_ID.ray" 2>&1 &
if (( ${#nodes[@]} > 1 )); then
    env --unset=RAY_ADDRESS srun --overlap --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --exclude="$head" \
        bash -c 'until "$@"; do sleep 2; done' - "${ray[@]}" --address="$RAY_ADDRESS" >> "slurm-$SLURM_JOB_ID.ray" 2>&1 &
fi

# A search counts the nodes when it begins. One that is missing after five minutes may still join.
timeout 300 python - "${#nodes[@]}" << 'PYTHON' || echo "Not all nodes of the allocation have joined; see slurm-$SLURM_JOB_ID.ray." >&2
import sys, time
import ray

while True:
    try:
        ray.init(logging_level="ERROR")
        break
    except (ConnectionError, RuntimeError, ValueError):
        time.sleep(2)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(1)
PYTHON

holdout run "$@"
