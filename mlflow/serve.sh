#!/usr/bin/env bash
# Start the MLflow server, by default for this machine only.
#
#   mlflow/serve.sh [--database URL] [--host ADDRESS] [--auth] [RUNS] [PORT]      default: runs 5000
#
#   --database URL   PostgreSQL instead of RUNS/mlflow.db. Its password is PGPASSWORD or in ~/.pgpass, never in the URL,
#                    which every user of this machine could read.
#   --host ADDRESS   the address to listen on, default 127.0.0.1.
#   --auth           every request needs a user and a password. The first start creates the user `admin` with the password
#                    in MLFLOW_AUTH_ADMIN_PASSWORD. Clients read theirs from ~/.mlflow/credentials or
#                    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
#
# Browsers and clients may use localhost, its address or this machine's name. To allow other names, set
# MLFLOW_SERVER_ALLOWED_HOSTS, for example "mlflow.lab:5000,localhost:5000".
#
# Artifacts are stored in RUNS/mlartifacts, or in MLFLOW_ARTIFACTS_DESTINATION (a folder or a URL such as s3://…).
set -euo pipefail

refuse() { echo "$1" >&2; exit 2; }

host=127.0.0.1 database="" app=()
while [[ ${1:-} == -* ]]; do
    case $1 in
        --database) database=${2:?--database needs an address}; shift 2 ;;
        --host) host=${2:?--host needs an address}; shift 2 ;;
        --auth) app=(--app-name basic-auth); shift ;;
        -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;;
        *) refuse "There is no option $1; there are --database, --host, --auth and --help." ;;
    esac
done
runs=$(realpath -- "${1:-runs}") port=${2:-5000}
[ $# -le 2 ] || refuse "There are ${#} words after the options, and only RUNS and PORT are known; quote a path that has spaces."
[[ $port =~ ^[0-9]{1,5}$ && 10#$port -ge 1 && 10#$port -le 65535 ]] || refuse "PORT must be a whole number between 1 and 65535; it is $port."
[ -d "$runs" ] || refuse "There is no runs folder $runs; a search makes it."
[[ $database =~ (://[^/@]*:[^@]*@|[?\&]password=) ]] && refuse "The address of --database holds a password; put it in ~/.pgpass instead."
PATH="$(dirname "$(realpath "$0")")/../.venv/bin:$PATH"
[[ $database != *psycopg:* ]] || python -c 'import psycopg' 2> /dev/null || refuse "psycopg is not installed; pip install 'holdout-dml[postgres]'"
quoted=$(python -c 'import sys; from urllib.parse import quote; print(quote(sys.argv[1]))' "$runs")

export MLFLOW_BACKEND_STORE_URI=${database:-sqlite+pysqlite:///$quoted/mlflow.db}
export MLFLOW_ARTIFACTS_DESTINATION=${MLFLOW_ARTIFACTS_DESTINATION:-file://$quoted/mlartifacts}
export MLFLOW_DISABLE_TELEMETRY=true
# MLflow's own patterns accept 10.evil.example as a private address and refuse the address given by --host.
names=(localhost 127.0.0.1 '[::1]' "$host" "$(hostname)")
[ "$host" = 0.0.0.0 ] && mapfile -t -O ${#names[@]} names < <({ hostname -f; hostname -I; } 2> /dev/null | tr ' ' '\n' | grep .)
printf -v allowed "%s:$port," "${names[@]}"
export MLFLOW_SERVER_ALLOWED_HOSTS=${MLFLOW_SERVER_ALLOWED_HOSTS:-${allowed%,}}
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false  # would start eight more processes, for jobs that are not used here
if [ ${#app[@]} -gt 0 ]; then
    own=$HOME/.config/holdout
    (umask 077 && mkdir -p "$own" && { [ -s "$own/mlflow_secret_key" ] || head -c 32 /dev/urandom | base64 > "$own/mlflow_secret_key"; })
    MLFLOW_FLASK_SERVER_SECRET_KEY=$(< "$own/mlflow_secret_key")
    config=$own/mlflow_users_$port.ini  # for this server only
    users=${database:-sqlite:///$quoted/mlflow_users.db}
    printf '%s\n' '[mlflow]' 'default_permission = READ' 'admin_username = admin' \
        "database_uri = ${users//%/%%}" > "$config"
    export MLFLOW_FLASK_SERVER_SECRET_KEY MLFLOW_AUTH_CONFIG_PATH=$config
    # Contains the users' hashed passwords.
    [ -n "$database" ] || { (umask 077 && touch "$runs/mlflow_users.db") && chmod 600 "$runs/mlflow_users.db"; }
fi
# A server that listens on every address is polled on the loopback address.
asked=$host; [ "$host" = 0.0.0.0 ] && asked=127.0.0.1
connects() { exec 3<> "/dev/tcp/$asked/$port"; } 2> /dev/null
answers() { connects && printf 'GET /health HTTP/1.0\r\nHost: localhost:%s\r\n\r\n' "$port" >&3 && grep -q ^OK <&3; }
(connects) && refuse "Port $port is taken; end what listens there, or give another one: mlflow/serve.sh $runs 5001"

server=$$
(
    until (answers); do
        sleep 0.5
        kill -0 "$server" 2> /dev/null || exit 0  # it ended with an error message
    done
    echo "MLflow answers at http://$asked:$port/#/experiments?workflowType=machine_learning; Ctrl-C ends it."
    echo "It opens in its view for generative AI: choose \"Model training\" at the top; the browser remembers it."
) &
echo "MLflow starts, which may take half a minute …"
exec mlflow server --host "$host" --port "$port" --workers 1 "${app[@]}"
