#!/usr/bin/env bash
# Everything that has to hold before a change is handed in, quickest first. Run by `npm run check` and by CI.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$1"; }

step 'format and lint'
npx biome check .
step 'types'
npx tsc -p tsconfig.json --noEmit
npx tsc -p src/console/tsconfig.json --noEmit
step 'dependency directions'
npx depcruise --config .dependency-cruiser.cjs src
step 'unused files, exports and dependencies'
npx knip
step 'openapi/openapi.json is the one the code generates'
node --import tsx src/cli.ts openapi --check
step 'openapi/openapi.json lints'
npx redocly lint openapi/openapi.json
step 'what is needed to deploy lints'
bash deploy/check.sh --install
step 'the build for production, with the console'
npm run build
step 'the domain is covered in full'
npx vitest run --project unit --coverage --reporter=dot
step 'tests'
npm test
step 'the console in a browser'
npm run test:e2e
