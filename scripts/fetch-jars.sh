#!/bin/sh
# Fetches the jars of one pom into a folder, all or nothing. Usage: fetch-jars.sh POM FOLDER
set -eu
pom=$1
folder=$2
rm -rf "$folder.new"
mkdir -p "$folder.new"
echo "setup: fetching the jars of $pom with Maven"
log=$folder.new/.maven.log
# Maven's own output is long; it is shown only when something went wrong.
if ! mvn -B -q -f "$pom" dependency:copy-dependencies -DoutputDirectory="$folder.new" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: Maven could not fetch the jars of $pom (see above); is the network or a mirror reachable?" >&2
    exit 1
fi
rm -rf "$folder"
mv "$folder.new" "$folder"
touch "$folder/.fetched"
