#!/bin/sh
# Starts the daemon of the container. The first time it makes a certificate, and a key with which Prometheus may look;
# both lie in the folder that Prometheus shares. Where AGENT_KEY names a file, it makes a key for agents there, too.
set -eu
settings=${1:-/etc/autosched/autosched.toml}
state=${2:-/var/lib/autosched}
umask 077
mkdir -p "$state/shown"
chmod 755 "$state/shown"
if [ ! -e "$state/key.pem" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=autosched \
        -addext subjectAltName=DNS:autosched -keyout "$state/key.new" -out "$state/shown/cert.pem" 2>/dev/null
    mv "$state/key.new" "$state/key.pem"
fi
if [ ! -e "$state/shown/viewer.key" ]; then
    autosched key new viewer -c "$settings" >"$state/shown/viewer.new" 2>/dev/null
    mv "$state/shown/viewer.new" "$state/shown/viewer.key"
fi
if [ -n "${AGENT_KEY:-}" ] && [ ! -e "$AGENT_KEY" ]; then
    autosched key new agent lab -c "$settings" >"$AGENT_KEY.new" 2>/dev/null
    mv "$AGENT_KEY.new" "$AGENT_KEY"
fi
chmod 644 "$state/shown/cert.pem" "$state/shown/viewer.key"
exec autosched serve -c "$settings"
