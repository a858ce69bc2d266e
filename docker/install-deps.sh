#!/usr/bin/env bash
# The one list of system packages: what deltad needs to be built, tested and run on Debian 12 and Ubuntu 24.04.
# Installs what is missing, and does nothing (and needs no root) when all is there.
#   docker/install-deps.sh          all of it
#   docker/install-deps.sh build    only what compiling deltad and deltactl needs (docker/Dockerfile)
#   docker/install-deps.sh image    only what scripts/build_image needs
set -euo pipefail

# What compiling the programs needs.
packages=(
  build-essential cmake ninja-build pkg-config git ca-certificates
  libspdlog-dev libfmt-dev nlohmann-json3-dev libsimdjson-dev libyaml-cpp-dev libcli11-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev libeigen3-dev libssl-dev zlib1g-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
)
# What the tests, the demo and a developer need besides.
others=(
  unzip clang clang-format clang-tidy
  libgtest-dev libgmock-dev libbenchmark-dev
  python3 python3-venv python3-pip curl openssl nghttp2-client prometheus groff-base
)
# Debian 12 has Boost 1.74 as its default and 1.81 beside it; Ubuntu 24.04's default is 1.83. Clang's sanitizer
# and fuzzer runtimes are a package of their own, named after the compiler's version.
. /etc/os-release
case "${ID:-}:${VERSION_ID:-}" in
  # chromium: the admin page's test.
  debian:12) packages+=(libboost1.81-dev) others+=(libclang-rt-14-dev chromium chromium-driver) ;;
  ubuntu:24.04) packages+=(libboost-dev) others+=(libclang-rt-18-dev) ;;
  *) packages+=(libboost-dev) ;;
esac
case "${1:-all}" in
  build) ;;
  image) packages=(buildah mmdebstrap) ;;
  all) packages+=("${others[@]}") ;;
  *) echo "usage: docker/install-deps.sh [all | build | image]" >&2; exit 2 ;;
esac

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2> /dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "Installing system packages: ${missing[*]}"
sudo=; [ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qqy --no-install-recommends "${missing[@]}" > /dev/null
