import { describe, expect, test } from 'vitest'
import { expandScopes, knownScopes, SCOPE_BUNDLES, SCOPES, TENANT_SCOPES } from '../../../src/domain/scope.ts'

describe('names of scopes', () => {
  test('stand for themselves, and those of bundles for several, each once and in one order', () => {
    expect(expandScopes(['replay', 'read', 'operations:read'])).toEqual({
      scopes: ['operations:read', 'ledger:read', 'replay', 'metrics:read'],
    })
    expect(expandScopes(['work'])).toEqual({ scopes: ['work'] })
    expect(expandScopes(['metrics'])).toEqual({ scopes: ['metrics:read', 'metrics:service'] })
  })

  test('that nobody knows are named', () => {
    expect(expandScopes(['read', 'root', 'other'])).toEqual({ unknown: 'root' })
    expect(expandScopes([''])).toEqual({ unknown: '' })
    expect(expandScopes(['constructor'])).toEqual({ unknown: 'constructor' })
  })

  test('that nobody knows grant nothing', () => {
    expect(knownScopes(['read', 'write', 'replay', 'root'])).toEqual(['replay'])
  })
})

test('the bundles of old have nothing in common, and with `work` are all that ends at a tenant', () => {
  const { read = [], write = [], operate = [], admin = [] } = SCOPE_BUNDLES
  const all = [...read, ...write, ...operate, ...admin, 'work' as const]
  expect(new Set(all).size).toBe(all.length)
  expect([...all].sort()).toEqual([...TENANT_SCOPES].sort())
  expect(SCOPES.filter((scope) => !TENANT_SCOPES.includes(scope))).toEqual(['metrics:service'])
})
