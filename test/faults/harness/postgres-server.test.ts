import { afterAll, beforeAll, expect, it } from 'vitest'
import { isFrozen, openPostgresServer, type PostgresServer } from './postgres-server.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await openPostgresServer()
  await server.query('create table kept (n int)')
}, 60_000)
afterAll(() => server.remove(), 60_000)

const count = async (): Promise<number> =>
  (await server.query<{ n: number }>('select count(*)::int as n from kept'))[0]?.n ?? -1

it('keeps its port and what was committed, whichever way it ends', async () => {
  for (const end of ['fast', 'immediate', 'crash'] as const) {
    await server.query('insert into kept values (1)')
    if (end === 'crash') {
      expect(server.signalAll('SIGKILL')).toBeGreaterThan(3)
      await server.start()
    } else await server.restart(end)
  }
  expect(await count()).toBe(3)
}, 60_000)

it('is frozen as a whole, and goes on', async () => {
  expect(server.signalAll('SIGSTOP')).toBeGreaterThan(3)
  await expect.poll(() => isFrozen(server)).toBe(true)
  const asked = count()
  const early = await Promise.race([asked, new Promise((resolve) => setTimeout(() => resolve('silence'), 200))])
  expect(early).toBe('silence')
  server.signalAll('SIGCONT')
  expect(await asked).toBe(3)
}, 60_000)

it('ends sessions by name, one of them as a crash, and takes settings while it runs', async () => {
  const held = server.query("set application_name = 'victim'; select pg_sleep(60)").catch((error) => error.code)
  await expect.poll(() => server.terminateBackends('victim')).toBe(1)
  expect(['57P01', 'CONNECTION_CLOSED']).toContain(await held)

  const crashed = server.query("set application_name = 'victim'; select pg_sleep(60)").catch((error) => error.code)
  await expect.poll(() => server.crashBackend('victim')).toBe(true)
  expect(['57P02', 'CONNECTION_CLOSED']).toContain(await crashed)
  await expect.poll(() => count().catch(() => -1), { timeout: 10_000 }).toBe(3)

  await server.configure({ default_transaction_read_only: 'on' })
  await expect(server.query('insert into kept values (2)')).rejects.toMatchObject({ code: '25006' })
  await server.configure({ default_transaction_read_only: null })
  await server.query('insert into kept values (2)')
}, 60_000)
