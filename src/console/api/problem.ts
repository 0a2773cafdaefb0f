/** A refusal, as the API worded it (RFC 9457), or as we word it where no answer came. */
export interface ProblemBody {
  code: string
  title: string
  status: number
  detail: string
  request_id?: string
  errors?: { detail: string; pointer?: string; line?: number }[]
  [member: string]: unknown
}

export class Problem extends Error {
  readonly body: ProblemBody

  constructor(body: ProblemBody, options?: ErrorOptions) {
    super(`${body.title}: ${body.detail}`, options)
    this.body = body
  }

  get code(): string {
    return this.body.code
  }

  get status(): number {
    return this.body.status
  }
}

/** No answer, or one that is not ours: a proxy's page, for example. Its code is none of the API's. */
export const UNREACHABLE = 'unreachable'

export const unreachable = (detail: string, cause?: unknown): Problem =>
  new Problem({ code: UNREACHABLE, title: '', status: 0, detail }, { cause })

export const readProblem = async (response: Response): Promise<Problem> => {
  const text = await response.text()
  try {
    const body: unknown = JSON.parse(text)
    if (isProblemBody(body)) return new Problem(body)
  } catch {
    // not JSON: said below
  }
  return unreachable(`HTTP ${response.status} ${response.statusText}`.trim())
}

const isProblemBody = (body: unknown): body is ProblemBody =>
  typeof body === 'object' &&
  body !== null &&
  'code' in body &&
  typeof body.code === 'string' &&
  'title' in body &&
  typeof body.title === 'string' &&
  'detail' in body &&
  typeof body.detail === 'string' &&
  'status' in body &&
  typeof body.status === 'number'
