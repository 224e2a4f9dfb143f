#!/bin/sh
# Fetches the jars of one pom into a folder, all or nothing: only those whose SHA-256 stands in jars.sha256 beside
# the pom, every one of them and no other.
# Usage: fetch-jars.sh POM FOLDER
#        fetch-jars.sh --pin POM ...   after a change of a pom: writes its jars.sha256 anew, for review and commit
set -eu

# Maven's own output is long; it is shown only when something went wrong. Its own checksums are those of the
# registry (-C: a wrong one ends it), so they say nothing about a registry that is not what it was.
fetch() {
    pom=$1 into=$2
    shift 2
    mkdir -p "$into"
    if ! mvn -B -q -C -f "$pom" "$@" dependency:copy-dependencies -DoutputDirectory="$into" >"$into/.maven.log" 2>&1
    then
        tail -n 20 "$into/.maven.log" >&2
        echo "setup: Maven could not fetch the jars of $pom (see above); is the network or a mirror reachable?" >&2
        exit 1
    fi
}

# SHA-256 and name of every jar in a folder, sorted by name.
sums() {
    command -v sha256sum >/dev/null && tool=sha256sum || tool="shasum -a 256"
    (export LC_ALL=C && cd "$1" && $tool -- *.jar)
}

if [ "$1" = --pin ]; then
    shift
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    for pom in "$@"; do
        echo "pin: fetching the jars of $pom anew, past what Maven has kept"
        rm -rf "$work/jars"
        fetch "$pom" "$work/jars" -Dmaven.repo.local="$work/repository"
        sums "$work/jars" >"$work/sums"
        mv "$work/sums" "$(dirname "$pom")/jars.sha256"
    done
    exit 0
fi

pom=$1 folder=$2 pinned=$(dirname "$1")/jars.sha256
rm -rf "$folder.new"
echo "setup: fetching the jars of $pom with Maven"
fetch "$pom" "$folder.new"
sums "$folder.new" >"$folder.new/.sums"
if ! awk -v list="$pinned" '
    FILENAME == list { pinned[$2] = $1; next }
    !($2 in pinned) { print "setup: " $2 " is not in " list; bad = 1; next }
    pinned[$2] != $1 { print "setup: " $2 " has SHA-256 " $1 ", expected " pinned[$2] " (" list ")"; bad = 1 }
    { delete pinned[$2] }
    END { for (name in pinned) { print "setup: " name " was not fetched (" list ")"; bad = 1 }; exit bad }
' "$pinned" "$folder.new/.sums" >&2; then
    rm -rf "$folder.new"
    echo "setup: none of these jars is used. Maven keeps what it fetched (in ~/.m2/repository): delete it there to" \
        "fetch it anew. If $pom was changed on purpose: scripts/fetch-jars.sh --pin $pom" >&2
    exit 1
fi
rm -rf "$folder"
mv "$folder.new" "$folder"
touch "$folder/.fetched"
