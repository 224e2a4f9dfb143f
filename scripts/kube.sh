#!/bin/sh
# Builds Kubernetes without a node into a folder: etcd, API server, its controllers, kubectl.
# Usage: kube.sh v1.34.1 FOLDER
set -eu
version=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOBIN="$folder"
source=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^.*"Dir": "\(.*\)",$/\1/p')
# Its own list, so that all it is made of has the versions and sums that it was released with. Its parts lie beside it
# there, and as modules of the same number where others take them from.
sed -e 's|^module .*|module kube|' -e "s|=> ./staging/src/\(.*\)|=> \1 v0.${version#v1.}|" "$source/go.mod" >go.mod
cat "$source/go.sum" >go.sum
go mod edit -require "k8s.io/kubernetes@$version"
for name in kube-apiserver kube-controller-manager kubectl; do
    go install -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" "k8s.io/kubernetes/cmd/$name"
done
go build -trimpath -ldflags "-s -w" -o "$folder/etcd" go.etcd.io/etcd/server/v3
