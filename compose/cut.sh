#!/bin/sh
# Takes out of the Python environment what no part of Weir loads: libraries' own tests, headers and sources, and
# those jars of Spark that are about machine learning, Hive, RocksDB's state store and Spark Connect.
# Usage: cut.sh SITE_PACKAGES
set -eu
cd "$1"
find . -type d \( -name tests -o -name testing -o -name test \) -path '*/numba/*' -prune -exec rm -rf {} +
for library in pandas numpy matplotlib pyarrow llvmlite; do
    find "$library" -type d -name tests -prune -exec rm -rf {} +
done
rm -rf pyarrow/include pyarrow/includes pyarrow/src pyarrow/*.pyx pyarrow/*.pxi numpy/_core/include numba/cuda
find . -name '*.pyx' -delete -o -name '*.pxd' -delete
rm -rf pip pip-* setuptools setuptools-* pkg_resources _distutils_hack distutils-precedence.pth wheel wheel-*
rm -rf pyspark/examples pyspark/data pyspark/licenses
cd pyspark/jars
rm -f rocksdbjni-*.jar spark-connect_*.jar spark-mllib*.jar breeze*.jar spire*.jar algebra_*.jar cats-kernel_*.jar
rm -f spark-hive*.jar hive-*.jar derby*.jar datanucleus-*.jar
# Netty's native code for machines that this is not.
rm -f netty-*-osx-*.jar netty-*-windows-*.jar
case $(uname -m) in
x86_64) rm -f netty-*-linux-aarch_64.jar netty-*-linux-riscv64.jar ;;
aarch64) rm -f netty-*-linux-x86_64.jar netty-*-linux-riscv64.jar ;;
esac
