#!/bin/sh
# Makes a CA and certificates for a trial, good for a year, those that are not there yet: of a broker and a proxy, for
# this machine and each HOST, and of a client. For each NAME there are NAME.pem (certificate), NAME.key (its key, PKCS#8
# without a passphrase) and NAME.keystore.pem (both, as Kafka and its clients take them); ca.pem is who to trust.
# Usage: certificates.sh FOLDER [HOST ...]
set -eu
folder=${1:?usage: certificates.sh FOLDER [HOST ...]}
shift
names=DNS:localhost,IP:127.0.0.1
for host in "$@"; do
    case $host in
    *:* | *[0-9].[0-9]*[!a-z]) kind=IP ;;
    *) kind=DNS ;;
    esac
    names=$names,$kind:$host
done
umask 077
mkdir -p "$folder"
cd "$folder"

# OpenSSL, which says something only if it fails.
quietly() {
    openssl "$@" 2>openssl.log || { cat openssl.log >&2; exit 1; }
    rm openssl.log
}

# A request with a new key, or with -x509 a certificate that vouches for itself: request NAME OPTION ...
request() {
    name=$1
    shift
    quietly req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$name.key" -subj "/O=Weir trial/CN=$name" "$@"
}

# issue NAME PURPOSE ALTERNATIVE_NAMES
issue() {
    [ ! -e "$1.pem" ] || return 0
    request "$1" -out "$1.csr"
    printf '%s\n' "extendedKeyUsage=$2" "subjectAltName=$3" basicConstraints=critical,CA:FALSE \
        keyUsage=critical,digitalSignature subjectKeyIdentifier=hash authorityKeyIdentifier=keyid >extensions
    quietly x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile extensions -out "$1.new"
    cat "$1.key" "$1.new" >"$1.keystore.pem"
    rm "$1.csr" extensions
    mv "$1.new" "$1.pem"
}

[ -e ca.pem ] || request ca -x509 -days 365 -out ca.pem -addext keyUsage=critical,keyCertSign,cRLSign
issue broker serverAuth,clientAuth "$names"
issue proxy serverAuth,clientAuth "$names"
issue client clientAuth email:client@localhost
echo "certificates: they are in $PWD; keep ca.key to yourself"
