import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declarativeTypeSchema } from '../../../src/domain/http-definition.ts'
import { LEDGER_EXPORT } from '../../../src/domain/ledger-export.ts'
import {
  assertSteps,
  DefinitionError,
  type PolicyDefinition,
  policyShape,
  providerShape,
  resolvePolicy,
  stepShape,
} from '../../../src/domain/operation-type-definition.ts'

const policySchema = z.strictObject({ ...policyShape, ...providerShape })
const MINIMAL = { name: 'grant', version: 1, effect: 'external' }

/** The same object with `value` at a path such as `retry.base_ms`. */
const withMember = (root: object, path: string, value: unknown): object => {
  const [first = '', ...rest] = path.split('.')
  const key = Array.isArray(root) ? Number(first) : first
  const child = (root as Record<string, unknown>)[first]
  const changed = rest.length === 0 ? value : withMember((child ?? {}) as object, rest.join('.'), value)
  if (Array.isArray(root)) return root.map((member, index) => (index === key ? changed : member))
  return { ...root, [first]: changed }
}
const takes = (schema: z.ZodType, root: object, path: string, value: unknown): boolean =>
  schema.safeParse(withMember(root, path, value)).success

describe('a policy', () => {
  test.each([
    ['version', 1, 1_000_000],
    ['batch.max_items', 1, 5_000],
    ['batch.max_ms', 10, 60_000],
    ['parallelism', 1, 64],
    ['concurrency', 1, 500],
    ['lease_seconds', 2, 3_600],
    ['stall_ms', 1_000, 86_400_000],
    ['max_cancel_seconds', 1, 86_400],
    ['retry.max_attempts', 1, 20],
    ['retry.base_ms', 1, 3_600_000],
    ['retry.max_ms', 1, 86_400_000],
    ['retention.items_days', 1, 3_650],
    ['retention.ledger_days', 1, 3_650],
  ])('%s is a whole number from %d to %d', (path, min, max) => {
    const fits = (value: unknown) => takes(policySchema, MINIMAL, path, value)
    expect([min, max].map(fits)).toEqual([true, true])
    expect([min - 1, max + 1, min + 0.5, String(min), null].map(fits)).toEqual(Array(5).fill(false))
  })

  test.each([
    ['rate_limit.per_second', 0.01, 100_000],
    ['provider_idempotent_hours', 0, 720],
  ])('%s is a number from %d to %d', (path, min, max) => {
    const fits = (value: unknown) => takes(policySchema, MINIMAL, path, value)
    expect([min, max, 1.5].map(fits)).toEqual([true, true, true])
    expect([min - 0.001, max + 0.001, '1'].map(fits)).toEqual([false, false, false])
  })

  test.each([
    ['effect', ['external', 'transactional', 'artifact']],
    ['risk', ['low', 'medium', 'high']],
    ['approval', ['none', 'replay', 'always']],
    ['idempotency_key', ['required', 'optional']],
    ['counts', ['exact', 'ranges']],
    ['on_absent', ['retry', 'case']],
  ])('%s is one of %j', (path, words) => {
    for (const word of words) expect(takes(policySchema, MINIMAL, path, word)).toBe(true)
    for (const other of ['', 'other', null]) expect(takes(policySchema, MINIMAL, path, other)).toBe(false)
  })

  test('touches names each thing that there is', () => {
    const all = ['money', 'permission', 'customer_data', 'customer_notice', 'external_send']
    expect(takes(policySchema, MINIMAL, 'touches', all)).toBe(true)
    expect(takes(policySchema, MINIMAL, 'touches', [...all, 'money'])).toBe(false)
    expect(takes(policySchema, MINIMAL, 'touches', [''])).toBe(false)
  })

  test.each([
    ['description', 500],
    ['owner', 500],
    ['no_compensation', 500],
    ['code_version', 64],
  ])('%s is a text of 1 to %d characters', (path, max) => {
    const fits = (length: number) => takes(policySchema, MINIMAL, path, 'x'.repeat(length))
    expect([1, max].map(fits)).toEqual([true, true])
    expect([0, max + 1].map(fits)).toEqual([false, false])
  })

  test.each([
    ['grant', true],
    ['grant-role', true],
    ['grant.role_2', true],
    ['g', true],
    [LEDGER_EXPORT, true],
    ['x'.repeat(64), true],
    ['x'.repeat(65), false],
    ['', false],
    ['Grant', false],
    ['2grant', false],
    ['grant-', false],
    ['-grant', false],
    ['grant--role', false],
    ['grant role', false],
    ['grant-Role', false],
  ])('the name %j: %s', (name, allowed) => {
    expect(takes(policySchema, MINIMAL, 'name', name)).toBe(allowed)
  })

  test('says what a name and a pointer must look like', () => {
    const issues = policySchema.safeParse({ ...MINIMAL, name: 'A', mask: ['x'], stop_if: ['x'] }).error?.issues ?? []
    expect(issues.map(({ message }) => message)).toEqual([
      'must be lower-case words joined by "-", such as grant-role',
      'must read "metric > number" (rates: up to 100%); the metrics are ambiguous_effect_targets, downstream_error_rate_5m, replay_reject_rate',
      'must be a JSON pointer such as /user',
    ])
  })

  test.each([
    ['/user', true],
    ['/user/0/~0~1', true],
    ['/', true],
    ['//', true],
    [`/${'x'.repeat(499)}`, true],
    [`/${'x'.repeat(500)}`, false],
    ['', false],
    ['user', false],
    ['/a~2', false],
    ['/a~', false],
    ['x/user', false],
  ])('the pointer %j of a mask: %s', (pointer, allowed) => {
    expect(takes(policySchema, MINIMAL, 'mask', [pointer])).toBe(allowed)
  })

  test.each([
    ['ambiguous_effect_targets > 0', true],
    ['ambiguous_effect_targets>123456789', true],
    ['ambiguous_effect_targets  >  5', true],
    ['ambiguous_effect_targets > 1234567890', false],
    ['ambiguous_effect_targets > 5%', false],
    ['ambiguous_effect_targets > x', false],
    ['ambiguous_effect_targets > ', false],
    ['x ambiguous_effect_targets > 0', false],
    ['ambiguous_effect_targets > 0 x', false],
    ['ambiguous_effect_targets < 0', false],
    ['downstream_error_rate_5m > 5%', true],
    ['downstream_error_rate_5m  >  5%', true],
    ['downstream_error_rate_5m>5%', true],
    ['downstream_error_rate_5m > 100%', true],
    ['downstream_error_rate_5m > 12.345678%', true],
    ['downstream_error_rate_5m > 12.3456789%', false],
    ['downstream_error_rate_5m > 12.%', false],
    ['downstream_error_rate_5m > .5%', false],
    ['downstream_error_rate_5m > x%', false],
    ['downstream_error_rate_5m > 1x.5%', false],
    ['downstream_error_rate_5m > 5.x%', false],
    ['downstream_error_rate_5m > 101%', false],
    ['downstream_error_rate_5m > 0.05', true],
    ['downstream_error_rate_5m > .05', true],
    ['downstream_error_rate_5m > 0.1234567', false],
    ['downstream_error_rate_5m > 0.x', false],
    ['downstream_error_rate_5m > 0', true],
    ['downstream_error_rate_5m > 1', true],
    ['downstream_error_rate_5m > 1.000000', true],
    ['downstream_error_rate_5m > 1.0000000', false],
    ['downstream_error_rate_5m > 1.5', false],
    ['downstream_error_rate_5m > 2', false],
    ['replay_reject_rate > 10%', true],
    ['another_rate > 10%', false],
    ['downstream_error_rate_5m > 5% x', false],
    ['x downstream_error_rate_5m > 5%', false],
  ])('the stop condition %j: %s', (condition, allowed) => {
    expect(takes(policySchema, MINIMAL, 'stop_if', [condition])).toBe(allowed)
  })

  test.each([
    ['stop_if', 'ambiguous_effect_targets > 0', 10],
    ['mask', '/x', 50],
  ])('%s has at most so many: %s × %d', (path, member, max) => {
    expect(takes(policySchema, MINIMAL, path, Array(max).fill(member))).toBe(true)
    expect(takes(policySchema, MINIMAL, path, Array(max + 1).fill(member))).toBe(false)
  })

  test.each(['', 'batch.', 'rate_limit.', 'retry.', 'retention.'])(
    'a misspelt member is refused: %smisspelt',
    (path) => {
      const root = path === 'rate_limit.' ? { ...MINIMAL, rate_limit: { per_second: 1 } } : MINIMAL
      expect(takes(policySchema, root, `${path}misspelt`, 1)).toBe(false)
    },
  )
})

describe('a policy without more than it needs', () => {
  const resolve = (over: Partial<PolicyDefinition> = {}, facts: Partial<Parameters<typeof resolvePolicy>[1]> = {}) =>
    resolvePolicy({ ...MINIMAL, ...over } as PolicyDefinition, { callTimeoutMs: 5_000, compensates: false, ...facts })

  test('has the documented defaults', () => {
    expect(resolve()).toEqual({
      name: 'grant',
      version: 1,
      description: null,
      owner: null,
      effect: 'external',
      steps: [],
      endsIrreversibly: false,
      risk: 'medium',
      touches: [],
      approval: 'none',
      idempotencyKey: 'required',
      batch: { maxItems: 100, maxMs: 1_000 },
      parallelism: 4,
      concurrency: 16,
      ratePerSecond: null,
      leaseMs: 30_000,
      stallMs: 60_000,
      maxCancelMs: 30_000,
      retry: { maxAttempts: 3, baseMs: 500, maxMs: 30_000 },
      stopIf: ['ambiguous_effect_targets > 0', 'downstream_error_rate_5m > 5%', 'replay_reject_rate > 10%'],
      retention: { itemsDays: 30, ledgerDays: 90 },
      mask: [],
      counts: 'exact',
      onAbsent: 'case',
      providerIdempotentMs: 0,
      compensation: 'none',
      noCompensationReason: null,
    })
  })

  test('keeps what is said', () => {
    expect(
      resolve(
        {
          description: 'd',
          owner: 'o',
          risk: 'high',
          approval: 'always',
          idempotency_key: 'optional',
          batch: { max_items: 7, max_ms: 20 },
          parallelism: 2,
          concurrency: 3,
          rate_limit: { per_second: 0.5 },
          lease_seconds: 20,
          stall_ms: 50_000,
          max_cancel_seconds: 9,
          retry: { max_attempts: 5, base_ms: 100, max_ms: 200 },
          stop_if: [],
          retention: { items_days: 3, ledger_days: 4 },
          mask: ['/a'],
          on_absent: 'retry',
          provider_idempotent_hours: 0.5,
          no_compensation: 'because',
        },
        { steps: [{ name: 'a' }, { name: 'b', irreversible: true }] },
      ),
    ).toMatchObject({
      description: 'd',
      owner: 'o',
      steps: ['a', 'b'],
      endsIrreversibly: true,
      risk: 'high',
      approval: 'always',
      idempotencyKey: 'optional',
      batch: { maxItems: 7, maxMs: 20 },
      parallelism: 2,
      concurrency: 3,
      ratePerSecond: 0.5,
      leaseMs: 20_000,
      stallMs: 50_000,
      maxCancelMs: 9_000,
      retry: { maxAttempts: 5, baseMs: 100, maxMs: 200 },
      stopIf: [],
      retention: { itemsDays: 3, ledgerDays: 4 },
      mask: ['/a'],
      onAbsent: 'retry',
      providerIdempotentMs: 1_800_000,
      noCompensationReason: 'because',
    })
  })

  test.each([
    [[], [], false],
    [[{ name: 'a', irreversible: true }], ['a'], true],
    [[{ name: 'a' }, { name: 'b', irreversible: false }], ['a', 'b'], false],
    [[{ name: 'a' }, { name: 'b' }, { name: 'c', irreversible: true }], ['a', 'b', 'c'], true],
  ])('of the steps %j ends irreversibly where the last one does', (steps, names, endsIrreversibly) => {
    expect(resolve({}, { steps })).toMatchObject({ steps: names, endsIrreversibly })
  })

  test('of an effect that is not external needs no idempotency key', () => {
    expect(resolve({ effect: 'transactional' }, { callTimeoutMs: null }).idempotencyKey).toBe('optional')
  })

  test('of an artifact keeps its ledger for a week, and so its items, and writes two chunks at a time', () => {
    expect(resolve({ effect: 'artifact' })).toMatchObject({
      retention: { itemsDays: 7, ledgerDays: 7 },
      concurrency: 2,
      idempotencyKey: 'optional',
    })
  })

  test.each([
    ['money', 365, 'replay'],
    ['permission', 365, 'replay'],
    ['customer_notice', 90, 'replay'],
    ['external_send', 90, 'replay'],
    ['customer_data', 90, 'none'],
  ] as const)(
    'that touches %s keeps its ledger for %d days, and asks for an approval: %s',
    (touch, ledgerDays, approval) => {
      const policy = resolve({ touches: [touch, touch], no_compensation: 'because' })
      expect(policy).toMatchObject({ touches: [touch], approval, retention: { itemsDays: 30, ledgerDays } })
    },
  )

  test('gives a long call twice its time before the run counts as stalled, and a long pause its own length', () => {
    expect(resolve({ lease_seconds: 60 }, { callTimeoutMs: 40_000 }).stallMs).toBe(80_000)
    expect(resolve({}, { callTimeoutMs: null }).stallMs).toBe(60_000)
    expect(resolve({ retry: { base_ms: 40_000 } }).retry).toEqual({ maxAttempts: 3, baseMs: 40_000, maxMs: 40_000 })
  })

  test('that compensates says so', () => {
    expect(resolve({ touches: ['money'] }, { compensates: true }).compensation).toBe('available')
  })

  test.each<[string, Partial<PolicyDefinition>, Partial<Parameters<typeof resolvePolicy>[1]>, string | null]>([
    ['money without a word on how it is taken back', { touches: ['money'] }, {}, 'no_compensation'],
    ['a permission', { touches: ['permission'] }, {}, 'no_compensation'],
    ['a notice', { touches: ['customer_notice'] }, {}, 'no_compensation'],
    ['a message', { touches: ['external_send'] }, {}, 'no_compensation'],
    ['data of customers', { touches: ['customer_data'] }, {}, null],
    [
      'both a way back and a reason why there is none',
      { no_compensation: 'x' },
      { compensates: true },
      'no_compensation',
    ],
    ['a cap below the first pause', { retry: { base_ms: 3, max_ms: 2 } }, {}, 'retry.max_ms'],
    ['a cap at the first pause', { retry: { base_ms: 2, max_ms: 2 } }, {}, null],
    [
      'a ledger that goes before its items',
      { retention: { items_days: 3, ledger_days: 2 } },
      {},
      'retention.ledger_days',
    ],
    ['a ledger that goes with them', { retention: { items_days: 2, ledger_days: 2 } }, {}, null],
    ['a call that fills the lease', { lease_seconds: 6 }, { callTimeoutMs: 5_000 }, 'lease_seconds'],
    ['a call that leaves a margin', { lease_seconds: 6 }, { callTimeoutMs: 4_999 }, null],
    [
      'a batch that fills the lease',
      { lease_seconds: 2, batch: { max_ms: 1_000 } },
      { callTimeoutMs: null },
      'lease_seconds',
    ],
    ['a batch that leaves a margin', { lease_seconds: 2, batch: { max_ms: 999 } }, { callTimeoutMs: null }, null],
    ['a call that fills the time to stall', { stall_ms: 6_000 }, {}, 'stall_ms'],
    ['a call that leaves a margin there', { stall_ms: 6_001 }, {}, null],
  ])('%s', (_what, over, facts, field) => {
    const attempt = () => resolve(over, facts)
    if (field === null) expect(attempt).not.toThrow()
    else expect(attempt).toThrow(expect.objectContaining({ name: 'DefinitionError', field }))
  })

  test('an author is told what to change, and by how much', () => {
    const detailOf = (over: Partial<PolicyDefinition>, facts: Partial<Parameters<typeof resolvePolicy>[1]> = {}) => {
      try {
        resolve(over, facts)
      } catch (error) {
        return (error as DefinitionError).detail
      }
      return null
    }
    expect(detailOf({ touches: ['money'] })).toBe(
      'required because touches names money: say how an effect is taken back (compensate) or why it cannot be (no_compensation)',
    )
    expect(detailOf({ no_compensation: 'x' }, { compensates: true })).toBe('must not stand beside compensate')
    expect(detailOf({ retry: { base_ms: 3, max_ms: 2 } })).toBe('must be at least base_ms (3)')
    expect(detailOf({ retention: { items_days: 3, ledger_days: 2 } })).toBe('must be at least items_days (3)')
    expect(detailOf({ lease_seconds: 6 })).toBe('must be more than the call timeout plus a margin (5000 ms + 1000 ms)')
    expect(detailOf({ lease_seconds: 2, effect: 'transactional' }, { callTimeoutMs: null })).toBe(
      'must be more than batch.max_ms plus a margin (1000 ms + 1000 ms)',
    )
  })
})

describe('steps', () => {
  const schema = z.strictObject(stepShape)

  test('have names that fit into an effect key', () => {
    for (const name of ['a', 'reserve-2_x', 'x'.repeat(32)]) expect(schema.safeParse({ name }).success).toBe(true)
    for (const name of ['', 'A', '2a', 'a/b', 'x'.repeat(33)]) expect(schema.safeParse({ name }).success).toBe(false)
    expect(schema.safeParse({ name: 'A' }).error?.issues[0]?.message).toBe(
      'must be lower-case, such as reserve, of at most 32 characters',
    )
  })

  const attempt = (steps: { name: string; irreversible?: boolean }[], compensates: boolean) => () =>
    assertSteps(steps, { field: 'http.steps', compensates })

  test('may end with one that cannot be taken back, unless the type says how that is done', () => {
    const steps = [{ name: 'a' }, { name: 'b', irreversible: true }]
    expect(attempt(steps, false)).not.toThrow()
    expect(attempt([{ name: 'a' }, { name: 'b' }], true)).not.toThrow()
    expect(attempt([], true)).not.toThrow()
    expect(attempt(steps, true)).toThrow(
      new DefinitionError(
        'http.steps.1.irreversible',
        'must not stand beside compensate: say with no_compensation why the effect cannot be taken back',
      ),
    )
  })

  test('whose order is wrong are refused with the place of the fault', () => {
    expect(attempt([{ name: 'a' }, { name: 'a' }], false)).toThrow(
      expect.objectContaining({ field: 'http.steps.1.name', detail: '"a" is the name of an earlier step too' }),
    )
    expect(attempt([{ name: 'a' }, { name: 'a' }], false)).toThrow(
      'http.steps.1.name: "a" is the name of an earlier step too',
    )
  })
})

describe('an entry of a type file', () => {
  const RULE = { status: [200], state: 'applied' }
  const ENTRY = {
    ...MINIMAL,
    http: {
      request: { url: 'https://example.com' },
      outcome: [RULE],
      lookup: { url: 'https://example.com', outcome: [RULE] },
      callback: { secret: 's', effect_key: '/key', outcome: [{ field: '/a', equals: [1], state: 'applied' }] },
      compensate: { url: 'https://example.com' },
    },
  }
  const fits = (path: string, value: unknown): boolean => takes(declarativeTypeSchema, ENTRY, path, value)

  test('may have all of these', () => {
    expect(declarativeTypeSchema.safeParse(ENTRY).success).toBe(true)
  })

  test.each([
    ['http.request.timeout_ms', 10, 600_000],
    ['http.lookup.timeout_ms', 10, 600_000],
    ['http.lookup.after_ms', 0, 86_400_000],
    ['http.compensate.timeout_ms', 10, 600_000],
    ['http.callback.tolerance_seconds', 10, 86_400],
    ['http.outcome.0.status.0', 100, 599],
    ['http.lookup.outcome.0.status.0', 100, 599],
  ])('%s is a whole number from %d to %d', (path, min, max) => {
    expect([min, max].map((value) => fits(path, value))).toEqual([true, true])
    expect([min - 1, max + 1, min + 0.5].map((value) => fits(path, value))).toEqual([false, false, false])
  })

  test.each([
    ['http.outcome', RULE, 50],
    ['http.outcome.0.status', 200, 100],
    ['http.lookup.outcome', RULE, 50],
    ['http.compensate.outcome', RULE, 50],
    ['http.callback.outcome', ENTRY.http.callback.outcome[0], 50],
    ['http.callback.outcome.0.equals', 'x', 100],
  ])('%s has from one to so many: %j × %d', (path, member, max) => {
    const ofLength = (length: number) => fits(path, Array(length).fill(member))
    expect([1, max].map(ofLength)).toEqual([true, true])
    expect([0, max + 1].map(ofLength)).toEqual([false, false])
  })

  test('has from one to eight steps, each with its request and outcome', () => {
    const step = (n: number) => ({ name: `s${n}`, request: { url: 'https://example.com' }, outcome: [RULE] })
    const ofLength = (length: number) =>
      fits(
        'http.steps',
        Array.from({ length }, (_, n) => step(n)),
      )
    expect([1, 8].map(ofLength)).toEqual([true, true])
    expect([0, 9].map(ofLength)).toEqual([false, false])
    expect(fits('http.steps', [{ ...step(1), request: undefined }])).toBe(false)
    expect(fits('http.steps', [{ ...step(1), irreversible: true }])).toBe(true)
    expect(fits('http.steps', [{ ...step(1), misspelt: true }])).toBe(false)
  })

  test.each(['http.request.headers', 'http.lookup.headers', 'http.compensate.headers'])('%s are at most 32', (path) => {
    const headers = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`h${n}`, 'v']))
    expect([fits(path, headers(32)), fits(path, headers(33))]).toEqual([true, false])
    expect([fits(path, { ['x'.repeat(500)]: 'v' }), fits(path, { ['x'.repeat(501)]: 'v' })]).toEqual([true, false])
    expect(fits(path, { h: 1 })).toBe(false)
    const { error } = declarativeTypeSchema.safeParse(withMember(ENTRY, path, headers(33)))
    expect(error?.issues[0]?.message).toBe('at most 32 headers')
  })

  test.each([
    ['http.request.method', ['POST', 'PUT', 'PATCH', 'DELETE', 'GET']],
    ['http.compensate.method', ['POST', 'PUT', 'PATCH', 'DELETE', 'GET']],
    ['http.callback.outcome.0.state', ['applied', 'absent']],
    ['http.lookup.outcome.0.state', ['applied', 'absent']],
    ['http.outcome.0.state', ['applied', 'skipped']],
    ['http.on_absent', ['retry', 'case']],
  ])('%s is one of %j', (path, words) => {
    for (const word of words) expect(fits(path, word)).toBe(true)
    for (const other of ['', 'other']) expect(fits(path, other)).toBe(false)
  })

  test.each(['transient', 'validation_rejected', 'conflict', 'policy_denied', 'bug_suspected'])(
    'a failure may be %s',
    (name) => {
      expect(fits('http.outcome.0', { status: [400], state: 'failed', class: name })).toBe(true)
    },
  )

  test.each(['ambiguous_effect', '', undefined])('a failure may not be %s', (name) => {
    expect(fits('http.outcome.0', { status: [400], state: 'failed', class: name })).toBe(false)
  })

  test('an outcome names a reference and a reason where its state has them', () => {
    const rule = (more: object) => fits('http.outcome.0', { status: [200], ...more })
    expect(rule({ state: 'applied', ref: '/id' })).toBe(true)
    expect(rule({ state: 'skipped', ref: '/id', reason_code: 'THERE' })).toBe(true)
    expect(rule({ state: 'failed', class: 'conflict', reason_code: 'NO' })).toBe(true)
    expect(rule({ state: 'applied', reason_code: 'NO' })).toBe(false)
    expect(rule({ state: 'failed', class: 'conflict', ref: '/id' })).toBe(false)
    expect(rule({ state: 'skipped', misspelt: 1 })).toBe(false)
    const found = (more: object) => fits('http.lookup.outcome.0', { status: [200], ...more })
    expect(found({ state: 'applied', ref: '/id' })).toBe(true)
    expect(found({ state: 'absent', ref: '/id' })).toBe(false)
    expect(found({ state: 'absent' })).toBe(true)
  })

  test('a callback compares with texts, numbers, booleans and null', () => {
    for (const value of ['x', 1, true, null]) expect(fits('http.callback.outcome.0.equals', [value])).toBe(true)
    expect(fits('http.callback.outcome.0.equals', [{}])).toBe(false)
    const { error } = declarativeTypeSchema.safeParse(withMember(ENTRY, 'http.callback.outcome.0.equals', [[]]))
    expect(error?.issues[0]?.message).toBe('must be a text, number, boolean or null')
    expect(fits('http.callback.outcome.0.ref', '/id')).toBe(true)
    expect(fits('http.callback.outcome.0.ref', 'id')).toBe(false)
    expect(fits('http.callback.outcome.0.field', 'a')).toBe(false)
    expect(fits('http.callback.effect_key', 'key')).toBe(false)
  })

  test.each(['http.request.url', 'http.lookup.url', 'http.compensate.url', 'http.callback.secret', 'effect_key'])(
    '%s is not empty',
    (path) => expect([fits(path, 'x'), fits(path, '')]).toEqual([true, false]),
  )

  test.each([
    '',
    'http.',
    'http.request.',
    'http.outcome.0.',
    'http.lookup.',
    'http.lookup.outcome.0.',
    'http.callback.',
    'http.callback.outcome.0.',
    'http.compensate.',
  ])('a misspelt member is refused: %smisspelt', (path) => {
    expect(fits(`${path}misspelt`, 1)).toBe(false)
  })

  test('its input is a schema, or everything, or nothing', () => {
    for (const schema of [{}, { type: 'object' }, true, false]) expect(fits('input', schema)).toBe(true)
    for (const other of ['object', 1, []]) expect(fits('input', other)).toBe(false)
    expect([fits('effect_key', 'x'.repeat(500)), fits('effect_key', 'x'.repeat(501))]).toEqual([true, false])
  })
})

describe('an entry whose items are run by workers elsewhere', () => {
  const LOOKUP = { url: 'https://example.com', outcome: [{ status: [200], state: 'applied' }] }
  const ENTRY = {
    ...MINIMAL,
    remote: {
      call_timeout_ms: 5_000,
      lookup: LOOKUP,
      callback: { secret: 's', effect_key: '/key', outcome: [{ field: '/a', equals: [1], state: 'applied' }] },
      on_absent: 'case',
      provider_idempotent_hours: 1,
      no_compensation: 'because',
    },
  }
  const fits = (path: string, value: unknown): boolean => takes(declarativeTypeSchema, ENTRY, path, value)

  test('may have all of these', () => {
    expect(declarativeTypeSchema.safeParse(ENTRY).success).toBe(true)
  })

  test('has a call timeout within bounds', () => {
    const ofTimeout = (ms: number) => fits('remote.call_timeout_ms', ms)
    expect([10, 600_000].map(ofTimeout)).toEqual([true, true])
    expect([9, 600_001, 10.5].map(ofTimeout)).toEqual([false, false, false])
  })

  test('has from one to eight steps, each with a lookup at most', () => {
    const ofLength = (length: number) =>
      fits(
        'remote.steps',
        Array.from({ length }, (_, n) => ({ name: `s${n}`, lookup: LOOKUP })),
      )
    expect([1, 8].map(ofLength)).toEqual([true, true])
    expect([0, 9].map(ofLength)).toEqual([false, false])
    expect(fits('remote.steps', [{ name: 'a', irreversible: true }])).toBe(true)
    expect(fits('remote.steps', [{ lookup: LOOKUP }])).toBe(false)
    expect(fits('remote.steps', [{ name: 'a', request: { url: 'https://example.com' } }])).toBe(false)
  })

  test.each(['remote.misspelt', 'remote.request', 'remote.compensate'])('has no member %s', (path) => {
    expect(fits(path, { url: 'https://example.com' })).toBe(false)
  })
})
