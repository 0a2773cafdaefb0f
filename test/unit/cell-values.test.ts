import { expect, test } from 'vitest'
import { cellReader } from '../../src/services/cell-values.ts'

const read = cellReader({
  type: 'object',
  properties: {
    name: { type: 'string' },
    size: { type: 'integer' },
    ratio: { type: ['number', 'null'] },
    active: { type: 'boolean' },
    either: { type: ['string', 'integer'] },
    free: {},
    listed: { enum: [1, 2] },
    any: true,
    nothing: { type: 'null' },
  },
})

test.each([
  ['name', '12', '12'],
  ['size', '12', 12],
  ['size', '-3', -3],
  ['ratio', '1.5e3', 1500],
  ['active', 'true', true],
  ['active', 'false', false],
  // what is no value of that kind stays a text, for the type to refuse
  ['size', '012', '012'],
  ['size', '0x1f', '0x1f'],
  ['size', ' 1', ' 1'],
  ['size', '9007199254740993', '9007199254740993'],
  ['ratio', 'Infinity', 'Infinity'],
  ['ratio', '1e999', '1e999'],
  ['active', 'yes', 'yes'],
  // a text is allowed, or nothing is said: it stays one
  ['either', '12', '12'],
  ['free', '12', '12'],
  ['listed', '1', '1'],
  ['any', '1', '1'],
  ['nothing', '', ''],
  ['other', 'true', 'true'],
  ['name', '', ''],
])('the cell %s %j is %j', (column, text, value) => {
  expect(read({ [column]: text })).toEqual({ [column]: value })
})

test('an empty cell where a number or a boolean belongs is left out', () => {
  expect(read({ name: 'n', size: '', ratio: '', active: '' })).toEqual({ name: 'n' })
})

test.each([true, null, [], { properties: 5 }, {}])('the schema %j says nothing about cells', (schema) => {
  expect(cellReader(schema)({ a: '1' })).toEqual({ a: '1' })
})
