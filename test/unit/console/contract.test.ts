import { readFileSync } from 'node:fs'
import openapiTS, { astToString } from 'openapi-typescript'
import { expect, it } from 'vitest'

it('the types of the console are those of the OpenAPI document (npm run openapi:types)', {
  timeout: 60_000,
}, async () => {
  const committed = readFileSync(new URL('../../../src/console/api/openapi.d.ts', import.meta.url), 'utf8')
  const generated = astToString(await openapiTS(new URL('../../../openapi/openapi.json', import.meta.url)))
  // the command puts a remark above it
  expect(committed.endsWith(generated)).toBe(true)
})
