#!/usr/bin/env bash
# MLflow's web pages for the searches of a runs folder, on this machine alone.
#
#   mlflow/serve.sh [RUNS] [PORT]      default: runs 5000
set -euo pipefail
cd "$(dirname "$0")/.."
runs=$(realpath "${1:-runs}")
port=${2:-5000}
if [ ! -d "$runs" ]; then
    echo "There is no runs folder $runs; a search makes it." >&2
    exit 2
fi
echo "http://127.0.0.1:$port shows the searches of $runs; Ctrl-C ends it."
exec .venv/bin/mlflow server \
    --backend-store-uri "sqlite:///$runs/mlflow.db" \
    --artifacts-destination "$runs/mlartifacts" \
    --host 127.0.0.1 --port "$port" --workers 1
