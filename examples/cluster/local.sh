#!/bin/sh
# A script in several processes of this machine, which end together: sh local.sh 4 fit.py
export KERNAX_PROCESSES="$1" KERNAX_COORDINATOR="127.0.0.1:${PORT:-12345}"
shift
trap 'kill 0' INT TERM
process=0
while [ "$process" -lt "$KERNAX_PROCESSES" ]; do
    KERNAX_PROCESS="$process" python "$@" &
    process=$((process + 1))
done
wait
