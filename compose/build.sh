#!/bin/sh
# Builds the images weir, weir-enforcer and weir-prometheus with the tag TAG (latest) from this clone.
# Usage: [ENGINE=podman] [BASE=image] [TAG=tag] [BUILD_ARGS="further arguments of build"] build.sh
set -eu
cd "$(dirname "$0")/.."
engine=${ENGINE:-docker} tag=${TAG:-latest}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# Secrets of a build (BUILD_ARGS) are BuildKit's; older ones of Docker have it, and ask to be told.
export DOCKER_BUILDKIT=1

format=
# Podman's own format has no health checks.
[ "${engine##*/}" != podman ] || format="--format docker"

for target in enforcer weir prometheus; do
    name=weir-$target
    [ $target != weir ] || name=weir
    echo "image: building $name:$tag"
    # shellcheck disable=SC2086 # several words each
    "$engine" build $format ${BUILD_ARGS:-} ${BASE:+--build-arg "BASE=$BASE"} --label "org.opencontainers.image.version=$version+$tag" \
        --target $target --file compose/Dockerfile --tag "$name:$tag" .
done
