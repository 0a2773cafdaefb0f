import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'

const watched = async (how: 'hang' | 'turn') => {
  const child = spawn(process.execPath, ['--import', 'tsx', 'test/support/watched-process.ts', how], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (said += text))
  const [code, signal] = await once(child, 'close')
  return { code, signal, said }
}

test('a process whose event loop stands still ends itself, and says why', async () => {
  expect(await watched('hang')).toEqual({
    code: null,
    signal: 'SIGKILL',
    said: 'opledger: the event loop stood still for 500 ms; the process ends itself\n',
  })
})

test('a process whose event loop turns is left alone, and a watchdog that is stopped keeps none alive', async () => {
  expect(await watched('turn')).toEqual({ code: 0, signal: null, said: 'well\n' })
})
