import type { LookupAddress } from 'node:dns'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { openWebhookTransport, publicLookup, type Resolve } from '../../src/maintenance/webhook-transport.ts'

const addressesOf = (...addresses: string[]): LookupAddress[] =>
  addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
const resolving =
  (...addresses: string[]): Resolve =>
  (_hostname, _options, callback) =>
    callback(null, addressesOf(...addresses))

/** What a socket would be told, in both ways in which it can ask. */
const ask = (resolve: Resolve, isGuarded = true): { all: unknown; one: unknown } => {
  const lookup = publicLookup(resolve, isGuarded)
  const said: { all: unknown; one: unknown } = { all: null, one: null }
  lookup('name.test', { all: true }, (error, addresses) => {
    said.all = error ?? addresses
  })
  lookup('name.test', {}, (error, address, family) => {
    said.one = error ?? [address, family]
  })
  return said
}

describe('the addresses of a name', () => {
  it.each([
    ['127.0.0.1'],
    ['10.1.2.3'],
    ['169.254.169.254'],
    ['100.64.0.1'],
    ['::1'],
    ['::ffff:127.0.0.1'],
    ['::ffff:a9fe:a9fe'],
    ['64:ff9b::a00:1'],
    ['fd00::1'],
    ['fe80::1%eth0'],
    ['0.0.0.0'],
    ['127.0.0.1', '::1', '192.168.1.1'],
    [],
  ])('%s %s %s: none that may be called', (...addresses) => {
    const refused = expect.objectContaining({ code: 'PRIVATE_ADDRESS' })
    expect(ask(resolving(...addresses.filter((address) => address !== undefined)))).toEqual({
      all: refused,
      one: refused,
    })
  })

  it('that are public are all that is left of a mixture, whatever stands first', () => {
    const said = ask(resolving('127.0.0.1', '8.8.8.8', '::1', '2001:4860:4860::8888'))
    expect(said).toEqual({ all: addressesOf('8.8.8.8', '2001:4860:4860::8888'), one: ['8.8.8.8', 4] })
  })

  it('stay as they are where private ones are allowed', () => {
    expect(ask(resolving('127.0.0.1', '8.8.8.8'), false)).toEqual({
      all: addressesOf('127.0.0.1', '8.8.8.8'),
      one: ['127.0.0.1', 4],
    })
  })

  it('that cannot be found are told as that', () => {
    const error = new Error('gone')
    expect(ask((_hostname, _options, callback) => callback(error, []))).toEqual({ all: error, one: error })
  })
})

/** A server on loopback, which must not be reached, and how often it was. */
const startInside = async () => {
  let requests = 0
  const server = createServer((_request, response) => {
    requests++
    response.writeHead(204).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    requests: () => requests,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

describe('a call', () => {
  const call = (host: string, port: number, resolve: Resolve, privateAddresses: 'refuse' | 'allow' = 'refuse') => {
    const transport = openWebhookTransport({ privateAddresses, timeoutMs: 5_000, connectionsPerOrigin: 1, resolve })
    return transport.post({ url: `http://${host}:${port}/`, headers: {}, body: '{}' }).finally(() => transport.close())
  }

  it('asks for a name once a connection, and connects to what it was answered then', async () => {
    const inside = await startInside()
    try {
      // public to whoever asks first, private to whoever asks again
      const answers = [[], ['127.0.0.1']]
      let asked = 0
      const rebinding: Resolve = (_hostname, _options, callback) =>
        callback(null, addressesOf(...(answers[asked++] ?? [])))
      expect(await call('rebinding.test', inside.port, rebinding)).toEqual({
        kind: 'unanswered',
        code: 'PRIVATE_ADDRESS',
      })
      expect(asked).toBe(1)
      // the counterpart: the very same way leads there where it may
      expect(await call('rebinding.test', inside.port, rebinding, 'allow')).toMatchObject({
        kind: 'answered',
        status: 204,
      })
      expect([asked, inside.requests()]).toEqual([2, 1])
    } finally {
      await inside.close()
    }
  })

  it.each([
    '127.0.0.1',
    '127.1',
    '2130706433',
    '0x7f.1',
    '0177.0.0.1',
    '[::1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    'localhost',
    'a.localhost',
  ])('to %s is not made, and nobody is asked for it', async (host) => {
    const inside = await startInside()
    try {
      const never: Resolve = () => {
        throw new Error('nobody is to be asked')
      }
      expect(await call(host, inside.port, never)).toEqual({ kind: 'unanswered', code: 'PRIVATE_ADDRESS' })
      expect(inside.requests()).toBe(0)
    } finally {
      await inside.close()
    }
  })
})
