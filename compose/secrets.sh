#!/bin/sh
# Makes the secrets that are not there yet, in secrets/ beside this script: a token for the admin API and a password
# for Grafana, both random, and an empty password for Kafka. Containers run as user 10001 (Grafana's as 472), and only
# those may read theirs: only root may give files away, so without it the engine does, by the image.
# Usage: secrets.sh [ENGINE]   docker (the default) or podman
set -eu
cd "$(dirname "$0")"

# What compose takes: the environment's, else that of .env.
setting() {
    [ ! -e .env ] || sed -n "s/^$1=[\"']\{0,1\}\([^\"']*\).*/\1/p" .env | tail -n 1
}
image=${WEIR_IMAGE:-$(setting WEIR_IMAGE)} tag=${WEIR_TAG:-$(setting WEIR_TAG)}
engine=${1:-docker}
mkdir -p secrets
chmod 700 secrets

random() {
    drawn=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
    [ ${#drawn} = 48 ] || { echo "secrets: od drew nothing from /dev/urandom" >&2; exit 1; }
    printf '%s' "$drawn"
}

# Also in the place of an empty one, as a full disk left it: Grafana would take its own default for that.
make() {
    [ -s "secrets/$1" ] || (umask 077 && printf '%s' "$2" >"secrets/$1.new" && mv -f "secrets/$1.new" "secrets/$1")
}

token=$(random)
password=$(random)
make kafka_password ""
make admin_tokens "tokens:
- {token: $token, role: admin, name: ops}
"
make grafana_password "$password"

own='chown 10001:10001 kafka_password admin_tokens && chown 472:472 grafana_password && chmod 0400 kafka_password admin_tokens grafana_password'
if [ "$(id -u)" = 0 ]; then
    (cd secrets && sh -c "$own")
else
    "$engine" run --rm --user 0 --entrypoint sh -v "$PWD/secrets:/secrets" -w /secrets "${image:-weir}:${tag:-latest}" -c "$own"
fi
echo "secrets: the admin API's token is in $PWD/secrets/admin_tokens"
