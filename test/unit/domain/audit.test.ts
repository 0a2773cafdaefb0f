import { expect, it } from 'vitest'
import { traceIdOf } from '../../../src/domain/audit.ts'

it.each([
  ['00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', '0af7651916cd43dd8448eb211c80319c'],
  ['nonsense', null],
  [null, null],
])('%j belongs to the trace %j', (traceparent, traceId) => expect(traceIdOf(traceparent)).toBe(traceId))
