/** Bodies of uploads, however the network cuts them. */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { describe, expect, it, test } from 'vitest'
import { readCsvRows } from '../../src/http/csv-rows.ts'
import { readNdjsonRows } from '../../src/http/ndjson-rows.ts'
import { openUploadBody } from '../../src/http/upload-body.ts'
import type { UploadRow } from '../../src/services/requests.ts'

const collect = async (rows: AsyncIterable<UploadRow[]>): Promise<UploadRow[]> => {
  const all: UploadRow[] = []
  for await (const some of rows) all.push(...some)
  return all
}
const cut = (text: string | Buffer, size: number): Readable => {
  const bytes = Buffer.from(text as string)
  return Readable.from(
    (function* () {
      for (let from = 0; from < bytes.length; from += size) yield bytes.subarray(from, from + size)
    })(),
  )
}
const ndjson = (text: string | Buffer, size = 7) => collect(readNdjsonRows(openUploadBody(cut(text, size), 'n').bytes))
const csv = (text: string | Buffer, size = 7, key = 'key') =>
  collect(readCsvRows(openUploadBody(cut(text, size), 'c').bytes, key))
const faultsOf = (rows: UploadRow[]) =>
  rows.flatMap((row) => ('faults' in row ? row.faults.map(({ detail }) => [row.line, detail]) : []))

describe('NDJSON', () => {
  it.each([1, 2, 3, 7, 64, 1_000_000])('is the same in pieces of %i bytes', async (size) => {
    const text = '\uFEFF{"key":"a","input":{"n":"ü€😀"}}\n\r\n{"key":"b","input":null}\n\n\n{"key":"c","input":[1]}'
    expect(await ndjson(text, size)).toEqual([
      { line: 1, key: 'a', input: { n: 'ü€😀' } },
      { line: 3, key: 'b', input: null },
      { line: 6, key: 'c', input: [1] },
    ])
  })

  it('goes on behind a bad line', async () => {
    const rows = await ndjson('{"key":"a"}\n[]\n{"key":"b","input":1}\n{"key":"c","input":1e17}')
    expect(rows.map((row) => ('faults' in row ? row.line : row.key))).toEqual([1, 2, 'b', 4])
  })

  it.each([64 * 1024, 4 * 1024 * 1024])('refuses a line over 1 MiB, also one that never ends (%i)', async (size) => {
    const long = `{"key":"a","input":"${'x'.repeat(1024 * 1024)}`
    const detail = 'is longer than 1048576 bytes'
    expect(faultsOf(await ndjson(`\n${long}"}\n{"key":"b"`, size))[0]).toEqual([2, detail])
    expect(faultsOf(await ndjson(long, size))).toEqual([[1, detail]])
  })

  it('refuses what is not UTF-8', async () => {
    const bytes = Buffer.concat([Buffer.from('{"key":"'), Buffer.from([0xc3, 0x28]), Buffer.from('","input":1}')])
    expect(faultsOf(await ndjson(bytes))).toEqual([[1, 'is not valid UTF-8']])
  })
})

describe('CSV', () => {
  it.each([1, 2, 3, 7, 64, 1_000_000])('is the same in pieces of %i bytes', async (size) => {
    const text = '\uFEFF"key",n\r\na,ü€😀\r\n\r\n"b\r\nb","x,""y"""\r\n   \nc,\n'
    expect(await csv(text, size)).toEqual([
      { line: 2, key: 'a', input: { n: 'ü€😀' } },
      { line: 4, key: 'b\r\nb', input: { n: 'x,"y"' } },
      { line: 7, key: 'c', input: { n: '' } },
    ])
  })

  it.each([
    ['a row that is too short', 'key,n\na,1\nb\n', 3, 'has 1 cells, and the header 2'],
    ['a row that is too long', 'key,n\na,1,2\n', 2, 'has 3 cells, and the header 2'],
    ['a row without a key', 'key,n\n,1\n', 2, 'the key must be of 1 to 255 bytes'],
    ['a long key', `key,n\n${'ü'.repeat(128)},1\n`, 2, 'the key must be of 1 to 255 bytes'],
    ['U+0000', 'key,n\na,\u0000\n', 2, 'the cell of "n" contains the character U+0000, which cannot be stored'],
    ['an open quote', 'key,n\na,1\n\nb,"2\nc,3\n', 4, 'opens a quote that is never closed'],
    [
      'a quote within a cell',
      'key,n\na,1"2\n',
      2,
      'has a quote within a cell that is not quoted; quote the cell, and write the quote twice',
    ],
    [
      'text behind a quote',
      'key,n\na,"1"2\n',
      2,
      'has text behind a closing quote; a quote within a quoted cell is written twice',
    ],
    ['a long record', `key,n\na,${'x'.repeat(1024 * 1024 + 10)}\n`, 2, 'is longer than 1048576 bytes'],
    ['no key column', '\nid,n\na,1\n', 2, 'the header has no column "key": name the one with the keys in ?key='],
    ['a column without a name', 'key,,n\n', 1, 'column 2 of the header has no name'],
    ['two columns of one name', 'key,n,n\n', 1, 'the header has two columns "n"'],
    ['a forbidden name', 'key,__proto__\n', 1, 'the column name __proto__ is not allowed'],
    ['a long name', `key,${'n'.repeat(256)}\n`, 1, "a column's name has more than 255 bytes"],
    [
      'too many columns',
      `key,${Array.from({ length: 256 }, (_, n) => `c${n}`).join(',')}\n`,
      1,
      'the header has more than 256 columns',
    ],
  ])('names the line of %s', async (_, text, line, detail) => {
    expect(faultsOf(await csv(text, 100_000)).at(-1)).toEqual([line, detail])
  })

  it('refuses what is not UTF-8, cell by cell', async () => {
    const bytes = Buffer.concat([Buffer.from('key,n\na,1\nb,'), Buffer.from([0xff]), Buffer.from('\nc,3\n')])
    const rows = await csv(bytes)
    expect(rows).toHaveLength(3)
    expect(faultsOf(rows)).toEqual([[3, 'the cell of "n" is not valid UTF-8']])
  })
})

describe('the body of an upload', () => {
  const sha = (text: string) => createHash('sha256').update(text).digest('base64url')

  it('has the hash of its bytes and of how they are read, wherever reading stopped', async () => {
    const whole = openUploadBody(cut('abcdefgh', 3), 'csv key')
    expect(await whole.hash()).toBe(sha('csv key\nabcdefgh'))
    const begun = openUploadBody(cut('abcdefgh', 3), 'csv key')
    await begun.bytes.next()
    expect(await begun.hash()).toBe(sha('csv key\nabcdefgh'))
  })

  it('is refused over its limit', async () => {
    await expect(openUploadBody(cut('x'.repeat(11), 4), '', 10).hash()).rejects.toMatchObject({
      code: 'body-too-large',
    })
    await expect(openUploadBody(cut('x'.repeat(10), 4), '', 10).hash()).resolves.toBeDefined()
  })

  test.each(['csv', 'ndjson'])('cut short as %s, it is an error of the caller', async (format) => {
    const source = new Readable({ read() {} })
    source.push('key,n\na,1\n')
    const { bytes } = openUploadBody(source, '')
    const rows = collect(format === 'csv' ? readCsvRows(bytes, 'key') : readNdjsonRows(bytes))
    source.destroy(Object.assign(new Error('aborted'), { code: 'ECONNRESET' }))
    await expect(rows).rejects.toMatchObject({ code: 'malformed-request' })
  })

  it('lives on when it is left half-read', async () => {
    const source = new Readable({ read() {} })
    source.push('abc')
    for await (const _chunk of openUploadBody(source, '').bytes) break
    expect(source.destroyed).toBe(false)
    source.resume()
  })
})
