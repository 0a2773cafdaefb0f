import { afterAll, beforeAll, expect, it } from 'vitest'
import { isLong } from './fault.ts'
import { openStandby, type Standby, takeBackup } from './postgres-copies.ts'
import { debianMajors, openPostgresServer, type PostgresServer } from './postgres-server.ts'

const count = async (server: PostgresServer): Promise<number> =>
  (await server.query<{ n: number }>('select count(*)::int as n from kept'))[0]?.n ?? -1

for (const debian of [undefined, debianMajors()[0]].slice(0, debianMajors().length === 0 ? 1 : 2)) {
  const name = debian === undefined ? 'the embedded PostgreSQL' : `PostgreSQL ${debian} of Debian`
  let server: PostgresServer
  let standby: Standby | undefined
  beforeAll(async () => {
    server = await openPostgresServer(debian === undefined ? {} : { debian })
    await server.query('create table kept (n int)')
  }, 60_000)
  afterAll(async () => {
    await standby?.server.remove()
    await server.remove()
  }, 60_000)

  it.runIf(isLong)(
    `${name} is taken back to a backup that was made while it was written to`,
    async () => {
      await server.query('insert into kept select 1 from generate_series(1, 1000)')
      let writing = true
      const writes = (async () => {
        while (writing) await server.query('insert into kept values (1)')
      })()
      const backup = await takeBackup(server)
      const atBackup = await count(server)
      writing = false
      await writes
      await server.query('insert into kept select 1 from generate_series(1, 1000)')
      await backup.restore()
      expect(await count(server)).toBeGreaterThanOrEqual(1000)
      expect(await count(server)).toBeLessThanOrEqual(atBackup)
      await server.query('insert into kept values (1)')
      backup.remove()
    },
    60_000,
  )

  it.runIf(isLong)(
    `${name} has a standby that knows each commit before it is answered, and takes over`,
    async () => {
      standby = await openStandby(server, { synchronous: true })
      standby.server.signalAll('SIGSTOP')
      const write = server.query('insert into kept values (2)')
      const early = await Promise.race([
        write.then(() => 'answered'),
        new Promise((resolve) => setTimeout(resolve, 300)),
      ])
      expect(early).toBeUndefined()
      standby.server.signalAll('SIGCONT')
      await write
      const before = await count(server)
      server.signalAll('SIGKILL')
      await standby.promote()
      expect(await count(standby.server)).toBe(before)
      await standby.server.query('insert into kept values (3)')
    },
    60_000,
  )
}
