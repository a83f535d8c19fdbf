#!/bin/sh
# Lends the cores of a container to the daemon at AUTOSCHED_HOST, by a name, with the key that the daemon has made.
set -eu
name=$1
key=${2:-/var/lib/autosched/lent/agent.key}
state=${3:-/var/lib/autosched/agent}
seconds=0
while [ ! -e "$key" ]; do
    if [ "$seconds" -ge 120 ]; then
        echo "there is no key at $key after $seconds s: does the daemon run, with AGENT_KEY=$key?" >&2
        exit 1
    fi
    seconds=$((seconds + 1))
    sleep 1
done
exec autosched agent --name "$name" --key "$key" --state-dir "$state"
