# What the recording shows, in a pseudo terminal that record.ts opens. Each command is printed, then run.
show() {
  printf '\033[1m$ %s\033[0m\n' "$1"
  eval "$1"
  local code=$?
  ((code == 0)) || printf '\033[2mexit code %s\033[0m\n' "$code"
  echo
}
member() { node -p "JSON.parse(require('node:fs').readFileSync(0, 'utf8'))$1"; }

show 'head -3 users.csv'
show 'opledger submit users.csv --type grant-role --key-column user --reason "audit 2026" --wait'
# the same command again is the same operation: this is how to learn its id
OP=$(opledger submit users.csv --type grant-role --key-column user --reason "audit 2026" --json 2>/dev/null | member .id)
show 'opledger preflight $OP'
show 'opledger reconcile list --operation $OP'
CASE=$(opledger reconcile list --operation "$OP" --json 2>/dev/null | member '[0].id')
show 'opledger reconcile resolve $CASE --applied --evidence "directory audit log, line 90211"'
show 'opledger replay $OP --reason "the directory is back" --yes --wait'
