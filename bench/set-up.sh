#!/usr/bin/env bash
# What the benches need besides the project itself: the peers from npm, and Redis for BullMQ. Without Redis BullMQ is
# reported as skipped, and everything else runs.
set -euo pipefail
cd "$(dirname "$0")"

npm ci

if command -v redis-server > /dev/null; then
  echo "redis-server is there: $(redis-server --version)"
elif command -v apt-get > /dev/null && [ "$(id -u)" = 0 ]; then
  # the benches start a server of their own: the package's one is not started
  apt-get update -q
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends redis-server
else
  echo 'redis-server is not installed, and only root can do that: apt-get install redis-server' >&2
fi
