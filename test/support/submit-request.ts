import type { SubmitRequest } from '../../src/services/requests.ts'

/** A submission as a client makes it that says no more than it must. */
export const submitRequest = (
  type: string,
  items: SubmitRequest['items'],
  change: Partial<SubmitRequest> = {},
): SubmitRequest => ({
  type,
  items,
  input: undefined,
  reason: null,
  labels: {},
  priority: 0,
  runAfter: null,
  deadlineAt: null,
  draft: false,
  callbackUrl: null,
  after: [],
  afterWhen: 'succeeded',
  stopIf: [],
  idempotencyKey: null,
  body: {},
  traceparent: null,
  ...change,
})
