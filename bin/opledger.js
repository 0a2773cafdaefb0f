#!/usr/bin/env node
import { existsSync } from 'node:fs'

// A checkout runs its TypeScript, so that it never runs a build older than its sources; a package has the build only.
const source = new URL('../src/cli.ts', import.meta.url)
if (existsSync(source)) {
  const { register } = await import('tsx/esm/api')
  register()
  await import(source.href)
} else {
  await import(new URL('../dist/cli.js', import.meta.url).href)
}
