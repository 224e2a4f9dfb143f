#!/bin/sh
# Says in one line each what set-up lacks and how to get it; exit status 1 if anything is missing. Of these only
# Chromium is installed, where that may be done: nobody has it where continuous integration runs.
# Usage: prerequisites.sh PYTHON [java|mvn|go|npm|g++|testssl|prometheus|promtool|chromium ...]
set -u
python=$1
shift
lacking=0

lack() {
    echo "setup: $1" >&2
    lacking=1
}

there() {
    for name in "$@"; do command -v "$name" >/dev/null || return 1; done
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    lack "Python 3.11 or later is needed ('$python' is not); install python3.11 (apt install python3, brew install python) or run: make PYTHON=/path/to/python3.11"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    lack "Python's venv module is needed; on Debian and Ubuntu: apt install python3-venv"
fi

for tool in "$@"; do
    case $tool in
    java)
        java=${JAVA_HOME:+$JAVA_HOME/bin/}java
        # Prints 17 for "17.0.15", and 1 for Java 8, which calls itself 1.8.
        version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
        # Later ones lack what Spark's Hadoop client calls (streaming/job/spark/java.py says the same).
        { [ "${version:-0}" -ge 17 ] && [ "$version" -le 23 ]; } ||
            lack "Java 17 (to 23) is needed (found: ${version:-none}); install it (apt install openjdk-17-jdk-headless, brew install openjdk@17) or set JAVA_HOME"
        ;;
    mvn)
        # weir/jars/installation.py fetches by itself from a repository that is named.
        [ -n "${WEIR_MAVEN_REPOSITORY:-}" ] || command -v mvn >/dev/null ||
            lack "Maven is needed to fetch the jars of Kafka and Spark's connector; apt install maven, brew install maven, or set WEIR_MAVEN_REPOSITORY"
        ;;
    go | npm | g++)
        command -v "$tool" >/dev/null ||
            lack "$tool is needed for tests of others' making; apt install golang npm g++ zlib1g-dev libssl-dev"
        ;;
    chromium)
        if ! there chromium chromedriver && [ "$(id -u)" = 0 ] && there apt-get; then
            echo "setup: installing Chromium and its driver" >&2
            export DEBIAN_FRONTEND=noninteractive
            { apt-get -qq update && apt-get -qq install --no-install-recommends chromium chromium-driver; } >/dev/null
        fi
        there chromium chromedriver ||
            lack "Chromium and its driver are needed to test the console; apt install chromium chromium-driver"
        ;;
    testssl)
        command -v testssl >/dev/null || lack "testssl.sh is needed for make secure; apt install testssl.sh"
        ;;
    prometheus | promtool)
        command -v "$tool" >/dev/null || lack "$tool is needed for make soak; apt install prometheus"
        ;;
    esac
done
exit $lacking
