/** Types with steps over HTTP: what is stored with an operation, and where its steps are shown. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { settleOperation } from '../../src/services/settle.ts'
import { claimRetries } from '../../src/storage/run/claim-retries.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { type Answer, type DraftApi, lines, openDraftApi, uuidOf } from '../support/drafts.ts'
import { plantedType } from '../support/planted-operation.ts'
import { claimOne, claimWindow, GRANT, NO_WAKE_UPS, TENANT, tell } from '../support/races.ts'

const STEPS = ['reserve', 'pay']
let api: DraftApi
beforeAll(async () => {
  const type = plantedType(GRANT.name, { steps: STEPS, endsIrreversibly: true, effectKey: ({ key }) => ({ key }) })
  api = await openDraftApi([type, plantedType('plain')])
})
afterAll(() => api.close())

const post = (path: string, body: unknown = {}): Promise<Answer> =>
  api.call('POST', path, JSON.stringify(body), { 'content-type': 'application/json' })
const read = async (path: string) => (await api.call('GET', path)).body
const readText = async (path: string, accept: string): Promise<string[]> => {
  const response = await fetch(api.url + path, { headers: { accept } })
  return (await response.text()).trim().split(/\r?\n/)
}
const submit = async (type: string, ...keys: string[]): Promise<string> =>
  (await post('/operations', { type, items: keys.map((key) => ({ key, input: {} })) })).body.id
const stepsOf = (id: string) =>
  api.service.database.query(
    ({ sql }) => sql<{ steps: string[] }>`
      select to_jsonb(steps) as steps from operation_shards where operation_id = ${uuidOf(id)}::uuid`,
  )
const finish = async (lease: ClaimedShard): Promise<void> => {
  await finishShard(api.service.database, lease)
  await settleOperation({ database: api.service.database, wakeUps: NO_WAKE_UPS }, TENANT, lease.operationId)
}

it('an operation, a started draft and a replay keep the steps of their type', async () => {
  const { database } = api.service
  expect(await stepsOf(await submit('plain', 'p'))).toEqual([{ steps: [] }])
  const draft = await api.draft()
  await api.upload(draft, lines(2, 'draft'))
  await post(`/operations/${draft}/start`)
  expect(await stepsOf(draft)).toEqual([{ steps: STEPS }])
  await post(`/operations/${draft}/cancel`)

  const id = await submit(GRANT.name, 'replayed')
  expect(await stepsOf(id)).toEqual([{ steps: STEPS }])
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 1)
  const failed = { effect: 'absent', item: 'failed', failureClass: 'transient', reasonCode: 'BUSY' } as const
  await tell(database, lease, { ord: 0, effectKey: 'replayed/reserve' }, { ...failed, fingerprint: 'f'.repeat(32) })
  await finish(lease)
  const { preflight_id } = (await post(`/operations/${id}/replay-preflight`)).body
  const replay = (await post(`/operations/${id}/replay`, { preflight_id, reason: 'again' })).body
  expect(await stepsOf(replay.id)).toEqual([{ steps: STEPS }])
  await post(`/operations/${replay.id}/cancel`)

  const [letter] = (await read(`/dead-letters?operation_id=${id}`)).items
  expect(letter).toMatchObject({ item_key: 'replayed', step: 'reserve', effect_key: 'replayed/reserve' })
})

it('shows the steps of a type', async () => {
  expect((await read(`/operation-types/${GRANT.name}`)).steps).toEqual([
    { name: 'reserve', irreversible: false },
    { name: 'pay', irreversible: true },
  ])
  expect((await read('/operation-types/plain')).steps).toEqual([])
})

it('shows the step of items, entries and cases, in every form', async () => {
  const { database } = api.service
  const id = await submit(GRANT.name, 'a', 'b', 'c')
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 2)
  const applied = { effect: 'applied', item: 'applied', effectRef: 'ref' } as const
  await tell(database, lease, { ord: 0, effectKey: 'a/reserve' }, applied)
  await tell(database, lease, { ord: 1, effectKey: 'b/reserve' }, applied)
  await claimRetries(database, lease, [1], { sendByMs: 1_000, resendWithinMs: 0 })
  await tell(database, lease, { ord: 1, effectKey: 'b/pay' }, { effect: 'uncertain', item: 'uncertain' })

  const { items } = await read(`/operations/${id}/items`)
  expect(items.map((item: Answer['body']) => [item.key, item.state, item.step, item.effect_key])).toEqual([
    ['a', 'unprocessed', 'pay', 'a'],
    ['b', 'uncertain', 'pay', 'b'],
    ['c', 'unprocessed', null, 'c'],
  ])
  const { items: ledger } = await read(`/operations/${id}/ledger`)
  expect(ledger.map((entry: Answer['body']) => [entry.item_key, entry.step, entry.state, entry.reason_code])).toEqual([
    ['a', 'reserve', null, 'STEP_APPLIED'],
    ['b', 'reserve', null, 'STEP_APPLIED'],
    ['b', 'pay', 'uncertain', null],
  ])
  const ndjson = await readText(`/operations/${id}/ledger`, 'application/x-ndjson')
  expect(ndjson.map((text) => JSON.parse(text).step)).toEqual(['reserve', 'reserve', 'pay'])
  const [head = '', ...rows] = await readText(`/operations/${id}/ledger`, 'text/csv')
  const column = head.split(',').indexOf('step')
  expect(rows.map((row) => row.split(',')[column])).toEqual(['reserve', 'reserve', 'pay'])
  const history = await read(`/operations/${id}/items/b/history`)
  expect(history.items.flatMap((event: Answer['body']) => event.entry?.step ?? [])).toEqual(['reserve', 'pay'])

  const [found] = (await read(`/reconciliation?operation_id=${id}`)).items
  expect(found).toMatchObject({ item_key: 'b', step: 'pay', effect_key: 'b/pay' })
  const asked = await post(`/reconciliation/${found.id}/lookup`)
  expect([asked.status, asked.body.code]).toEqual([409, 'lookup-not-available'])
  expect(asked.body.detail).toContain('the step "pay" of grant has no lookup')
})

it('shows none where the type has none', async () => {
  const id = await submit('plain', 'q')
  const { items } = await read(`/operations/${id}/items`)
  expect(items[0].step).toBeNull()
})
