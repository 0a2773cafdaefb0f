#!/usr/bin/env bash
# Installs what the fault suite takes from Debian, when it is missing: a PostgreSQL server (15 or later), pgbouncer,
# libfaketime, and ip of iproute2. What cannot be installed is told as one line, `missing: <package>: <reason>`, and the exit code is 0: the
# tests that need it are then reported as skipped, with this reason. Nothing is started, now or at the next boot, and when
# all is there nothing is done. Needs root, or sudo without a password.
set -u
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

readonly INSTALL_SECONDS=300 UPDATE_SECONDS=120 TRIES=2
readonly POLICY=/usr/sbin/policy-rc.d
readonly APT=(apt-get -q -y -o DPkg::Lock::Timeout=60 -o Acquire::Retries=3 -o Acquire::http::Timeout=20
  -o Acquire::https::Timeout=20 -o Dpkg::Use-Pty=0)

has() {
  local file version
  case "$1" in
    postgresql)
      for file in /usr/lib/postgresql/*/bin/postgres; do
        version=${file#/usr/lib/postgresql/}
        version=${version%%/*}
        if [[ -x $file && $version -ge 15 ]]; then return 0; fi
      done
      return 1 ;;
    pgbouncer) [[ -x /usr/sbin/pgbouncer ]] ;;
    libfaketime) compgen -G '/usr/lib/*/faketime/libfaketime.so.1' > /dev/null ;;
    iproute2) [[ -x /usr/sbin/ip || -x /sbin/ip || -x /usr/bin/ip || -x /bin/ip ]] ;;
  esac
}

missing=()
for package in postgresql pgbouncer libfaketime iproute2; do
  has "$package" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then exit 0; fi

give_up() {
  for package in "${missing[@]}"; do echo "missing: $package: $1"; done
  exit 0
}

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  sudo -n true 2> /dev/null || give_up 'installing it needs root, or sudo without a password'
  as_root=(sudo -n --preserve-env=DEBIAN_FRONTEND,LC_ALL)
fi
command -v apt-get > /dev/null || give_up 'there is no apt-get here'

output=$(mktemp)
made_policy=false
clean_up() {
  if $made_policy; then "${as_root[@]}" rm -f "$POLICY"; fi
  rm -f "$output"
}
trap clean_up EXIT

# Asked by the packages before they start a service: 101 forbids it.
if [[ ! -e $POLICY ]]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$POLICY" > /dev/null && "${as_root[@]}" chmod 755 "$POLICY" &&
    made_policy=true
fi

install() {
  "${as_root[@]}" timeout -k 10 "$INSTALL_SECONDS" "${APT[@]}" install --no-install-recommends "$1" > "$output" 2>&1
}

for package in "${missing[@]}"; do
  for ((try = 1; try <= TRIES; try++)); do
    if install "$package" && has "$package"; then break; fi
    # the lists may be old, or were never fetched
    if ((try < TRIES)); then "${as_root[@]}" timeout -k 10 "$UPDATE_SECONDS" "${APT[@]}" update > "$output" 2>&1; fi
  done
  if has "$package"; then
    if [[ -d /run/systemd/system ]]; then
      "${as_root[@]}" systemctl disable --quiet "$package" > /dev/null 2>&1
    fi
  else
    reason=$(grep -E '^(E:|W:|dpkg: error)' "$output" | head -n 1)
    echo "missing: $package: ${reason:-apt-get install did not install a version that can be used}"
  fi
done
exit 0
