/** What a poll shows of an operation that stands still, for one reason or another. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { plantedType } from '../support/planted-operation.ts'
import { openTestService, principal, type TestService } from '../support/service.ts'

let service: TestService
beforeAll(async () => {
  service = await openTestService({ types: [plantedType('grant')] })
})
afterAll(() => service.close())

const asked = { reason: null, ifMatchVersion: null }

test('an operation that was paused before anybody took it has not started, and waits again once resumed', async () => {
  const { id } = await service.submit('grant', [{ key: 'a' }], { runAfter: '2999-01-01T00:00:00Z' })
  await service.services.pauseOperation(principal, id, asked)
  expect(await service.view(id)).toMatchObject({ status: 'paused', startedAt: null })
  await service.services.resumeOperation(principal, id, asked)
  expect(await service.view(id)).toMatchObject({ status: 'pending', startedAt: null })
})

/** One that a worker had, as its shard would stand then. */
const running = async (shard: { claims?: number; suspectCrashes?: number } = {}): Promise<string> => {
  const { id } = await service.submit('grant', [{ key: 'a' }, { key: 'b' }])
  await service.database.query(
    ({ sql }) => sql`
      with o as (
        update operations set status = 'running', started_at = now() - interval '2 hours' where id = ${id}::uuid returning id)
      update operation_shards s set claims = ${shard.claims ?? 0}, suspect_crashes = ${shard.suspectCrashes ?? 0}
      from o where s.operation_id = o.id`,
  )
  return id
}
const waiting = (id: string, attempt: number) =>
  service.database.query(
    ({ sql }) => sql`
      with r as (
        insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason)
        values (1, ${id}::uuid, 0, 0, 'k', ${attempt}, 'failed'))
      update operation_shards set waiting = 1 where operation_id = ${id}::uuid`,
  )
const signals = async (id: string) => (await service.view(id)).stuckSignals

test('three attempts on one item show: lost runs, runs charged to it, tries of it; not a third run that goes well', async () => {
  expect(await signals(await running({ claims: 3 }))).not.toContain('attempts_used')
  expect(await signals(await running({ claims: 4 }))).toContain('attempts_used')
  expect(await signals(await running({ suspectCrashes: 3 }))).toContain('attempts_used')
  const tried = await running()
  await waiting(tried, 3)
  expect(await signals(tried)).not.toContain('attempts_used')
  await service.database.query(({ sql }) => sql`delete from item_retries`)
  await waiting(tried, 4)
  expect(await signals(tried)).toContain('attempts_used')
})

test('what was paused for hours is not stuck when it goes on', async () => {
  const id = await running()
  expect(await signals(id)).toContain('checkpoint_unchanged')
  await service.services.pauseOperation(principal, id, asked)
  await service.services.resumeOperation(principal, id, asked)
  expect(await service.view(id)).toMatchObject({ status: 'running' })
  expect(await signals(id)).not.toContain('checkpoint_unchanged')
})
