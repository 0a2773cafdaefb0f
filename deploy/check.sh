#!/usr/bin/env bash
# Lints what is here and cannot be run without a container engine, a systemd or a cluster, each file by its own tool. One line each:
#   ok: <what>            failed: <what>, and below it what the tool said            skipped: <what>: <what is missing>
# What is skipped has not passed. The exit code is 1 when something failed.
#   --install   first installs Debian's packages that are missing: prometheus (promtool), docker-compose, systemd. Nothing is started.
set -u
cd "$(dirname "$0")"
export LC_ALL=C

readonly INSTALL_SECONDS=300 UPDATE_SECONDS=120 TOOL_SECONDS=120
readonly POLICY=/usr/sbin/policy-rc.d
# the exposure that `systemd-analyze security` finds, times ten: what is left is the network, and that children may notify
readonly EXPOSURE_MAX=20

failures=0
said=$(mktemp)
made_policy=false
clean_up() {
  rm -f "$said"
  if $made_policy; then rm -f "$POLICY"; fi
}
trap clean_up EXIT

has() { command -v "$1" > /dev/null 2>&1; }

install() {
  local packages=()
  has promtool || packages+=(prometheus)
  has systemd-analyze || packages+=(systemd)
  if ! has docker-compose && ! docker compose version > /dev/null 2>&1; then packages+=(docker-compose); fi
  if [[ ${#packages[@]} -eq 0 ]]; then return; fi
  if ! has apt-get || [[ $(id -u) -ne 0 ]]; then
    echo "not installed: ${packages[*]}: needs apt-get and root"
    return
  fi
  # asked by the packages before they start a service: 101 forbids it
  if [[ ! -e $POLICY ]]; then
    printf '#!/bin/sh\nexit 101\n' > "$POLICY" && chmod 755 "$POLICY" && made_policy=true
  fi
  local apt=(apt-get -q -y -o DPkg::Lock::Timeout=60 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0) package
  export DEBIAN_FRONTEND=noninteractive
  timeout -k 10 "$UPDATE_SECONDS" "${apt[@]}" update > "$said" 2>&1
  for package in "${packages[@]}"; do
    timeout -k 10 "$INSTALL_SECONDS" "${apt[@]}" install --no-install-recommends "$package" > "$said" 2>&1 ||
      echo "not installed: $package: $(grep -E '^(E:|dpkg: error)' "$said" | head -n 1)"
  done
  if [[ -d /run/systemd/system ]]; then systemctl disable --quiet --now prometheus > /dev/null 2>&1; fi
}

skipped() { echo "skipped: $1: $2"; }

# check <what> <command…>: it passes when the command does
check() {
  local what=$1
  shift
  if timeout -k 5 "$TOOL_SECONDS" "$@" > "$said" 2>&1; then
    echo "ok: $what"
  else
    echo "failed: $what"
    sed 's/^/    /' "$said"
    failures=$((failures + 1))
  fi
}

if [[ ${1:-} == --install ]]; then install; fi

if has promtool; then
  check 'prometheus/rules.yml: syntax' promtool check rules prometheus/rules.yml
  check 'prometheus/rules.yml: each alert fires when it should' promtool test rules prometheus/rules.test.yml
  check 'prometheus/prometheus.yml' promtool check config --syntax-only prometheus/prometheus.yml
else
  skipped 'prometheus/' "there is no promtool (Debian's package prometheus)"
fi

# A unit may name a program that is not on this machine; what is looked for are faults of the unit.
verify_unit() {
  systemd-analyze verify --man=no "$1" 2>&1 | grep -vE 'Command .* is not executable: No such file' | tee /dev/stderr |
    grep -q . && return 1
  return 0
}
if has systemd-analyze; then
  export -f verify_unit
  for unit in systemd/*.service; do
    check "$unit" bash -c "verify_unit '$unit'"
    if systemd-analyze security --help 2> /dev/null | grep -q -- --offline; then
      check "$unit: exposure" systemd-analyze security --no-pager --offline=true --threshold=$EXPOSURE_MAX "$unit"
    else
      skipped "$unit: exposure" 'this systemd-analyze cannot judge a file'
    fi
  done
else
  skipped 'systemd/' "there is no systemd-analyze (Debian's package systemd)"
fi

if has hadolint; then
  check 'Dockerfile' hadolint ../Dockerfile
else
  skipped 'Dockerfile' 'there is no hadolint; test/unit/deploy lints it by other means'
fi

if docker compose version > /dev/null 2>&1; then
  check 'docker-compose.yml' docker compose -f ../docker-compose.yml config --quiet
elif has docker-compose; then
  check 'docker-compose.yml' docker-compose -f ../docker-compose.yml config --quiet
else
  skipped 'docker-compose.yml' "there is no compose (Debian's package docker-compose); test/unit/deploy checks it against the specification"
fi

# The members of a pod template that kubectl drops when it reads and writes it, as its types have none of that name. Fails when there are any.
find_unknown_members() {
  local manifest known member found=0
  manifest=$(awk 'BEGIN { RS = "---\n" } /\nkind: (Deployment|Job)\n/' "$1")
  known=$(kubectl set serviceaccount --local -f - -o json opledger <<< "$manifest") || return 1
  while read -r member; do
    if grep -qF "\"$member\":" <<< "$known"; then continue; fi
    echo "$1: there is no member $member"
    found=1
  done < <(grep -v '^ *#' <<< "$manifest" | grep -oE '^ *(- )?[A-Za-z][A-Za-z0-9./-]*:' | tr -d ' :' | sed 's/^-//' | sort -u)
  return $found
}
if has kubectl; then
  check 'kubernetes/kustomization.yaml' kubectl kustomize kubernetes
  export -f find_unknown_members
  for manifest in kubernetes/{migrate,api,worker}.yaml; do
    check "$manifest: members of the pod" bash -c "find_unknown_members '$manifest'"
  done
else
  skipped 'kubernetes/' 'there is no kubectl: members that the API does not know are not looked for'
fi
if has kubeconform; then
  check 'kubernetes/' kubeconform -strict -ignore-filename-pattern 'kustomization|external-metrics' kubernetes
else
  skipped 'kubernetes/' 'there is no kubeconform; test/unit/deploy checks the manifests against the models of the API'
fi

[[ $failures -eq 0 ]]
